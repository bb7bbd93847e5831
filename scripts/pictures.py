#!/usr/bin/env python3
"""Draws the pictures of the pages, as SVG for light and dark: `docs/pictures/*.svg`.

    scripts/pictures.py            writes them
    scripts/pictures.py --check    fails if one of them is not as this script draws it

A picture is a list of lanes from top to bottom, and what happens in them from left to right. One unit is one pixel.
"""

import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
WIDTH, LEFT, LANE, TOP = 860, 128, 62, 26

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.lane { font-weight: 600 } .small { font-size: 11px } .middle { text-anchor: middle }
.line { stroke: #d0d7de } .arrow { stroke: #57606a; fill: none } .head { fill: #57606a }
.hold { fill: #aceebb } .wait { fill: #fae17d } .lost { fill: #ffcecb } .off { fill: #d8dee4 }
.mark { stroke: #cf222e; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .line { stroke: #3d444d } .arrow { stroke: #9198a1 } .head { fill: #9198a1 }
  .hold { fill: #196c2e } .wait { fill: #845306 } .lost { fill: #8e1519 } .off { fill: #3d444d }
  .mark { stroke: #f85149 }
}
"""


@dataclass
class Picture:
    title: str
    lanes: list[str]
    parts: list[str] = field(default_factory=list)

    def y(self, lane: str) -> int:
        return TOP + self.lanes.index(lane) * LANE + LANE // 2

    def text(self, x: float, y: float, words: str, kind: str) -> None:
        self.parts.append(f'<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>')

    def bar(self, lane: str, start: int, end: int, words: str, kind: str) -> None:
        """A time in a lane: `hold`, `wait`, `lost` or `off`."""
        y = self.y(lane)
        size = f'x="{LEFT + start}" y="{y - 10}" width="{end - start}" height="20" rx="3"'
        self.parts.append(f'<rect class="{kind}" {size}/>')
        self.text(LEFT + (start + end) / 2, y + 4, words, "small middle")

    def arrow(self, start: int, source: str, end: int, target: str, words: str = "") -> None:
        """A message from one lane to another."""
        down = 1 if self.y(target) > self.y(source) else -1
        x1, y1 = LEFT + start, self.y(source) + 11 * down
        x2, y2 = LEFT + end, self.y(target) - 11 * down
        self.parts.append(f'<path class="arrow" d="M{x1} {y1}L{x2} {y2 - 5 * down}"/>')
        self.parts.append(f'<path class="head" d="M{x2} {y2}l-4 {-7 * down}h8z"/>')
        self.text((x1 + x2) / 2 + 5, (y1 + y2) / 2 + 4, words, "small")

    def lost(self, start: int, source: str, target: str) -> None:
        """A message that does not arrive."""
        down = 1 if self.y(target) > self.y(source) else -1
        x, y = LEFT + start, self.y(source) + 11 * down
        self.parts.append(f'<path class="arrow" d="M{x} {y}l6 {16 * down}m-4 -2l8 8m0 -8l-8 8"/>')

    def mark(self, at: int, first: str, last: str, words: str) -> None:
        """A moment in several lanes."""
        x, top, bottom = LEFT + at, self.y(first) - 20, self.y(last) + 20
        self.parts.append(f'<path class="mark" d="M{x} {top}V{bottom}"/>')
        self.text(x, top - 4, words, "small middle")

    def svg(self) -> str:
        height = TOP + len(self.lanes) * LANE
        lines = []
        for lane in self.lanes:
            y = self.y(lane)
            lines.append(f'<path class="line" d="M{LEFT} {y}H{WIDTH - 8}"/>')
            lines.append(f'<text class="lane" x="8" y="{y + 4}">{escape(lane)}</text>')
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", f"<style>{STYLE}</style>", *lines, *self.parts, "</svg>", ""])


def call() -> Picture:
    """The path of a call."""
    caller, process, thread, store = "caller", "locker", "renewing task", "store"
    it = Picture("The path of one call on a shared store", [caller, process, thread, store])
    it.arrow(10, caller, 40, process, "calls the function")
    it.arrow(50, process, 90, store, "acquire")
    it.arrow(140, store, 180, process, "granted")
    it.arrow(185, process, 205, caller)
    it.bar(caller, 210, 520, "body", "hold")
    it.bar(store, 95, 620, "held, with fence 7", "hold")
    for at in (290, 400, 500):
        it.arrow(at, thread, at + 15, store)
    it.text(LEFT + 285, it.y(thread) - 8, "renews after each third of the lease", "small")
    it.arrow(525, caller, 550, process, "ends")
    it.arrow(560, process, 615, store, "release")
    it.arrow(640, store, 680, process)
    it.arrow(685, process, 700, caller, "result")
    return it


def lease() -> Picture:
    """A lease with its renewals and a loss."""
    holder, store, waiter = "holder", "store", "next caller"
    it = Picture("A lease is renewed twice, and then lost because the network is cut", [holder, store, waiter])
    it.bar(holder, 10, 350, "runs the body, safe", "hold")
    it.bar(holder, 350, 520, "runs on, in jeopardy", "wait")
    it.bar(holder, 520, 700, "cancelled: Lost", "lost")
    it.bar(store, 25, 545, "held", "hold")
    it.bar(store, 545, 720, "held by the next caller", "hold")
    it.bar(waiter, 60, 550, "waits", "wait")
    it.bar(waiter, 560, 720, "runs, with a higher fence", "hold")
    for at, words in ((110, "renew"), (210, "renew")):
        it.arrow(at, holder, at + 15, store, words)
    for at in (315, 385, 455):
        it.lost(at, holder, store)
    it.mark(300, holder, store, "the network is cut")
    it.mark(520, holder, store, "the holder's deadline")
    it.text(LEFT + 552, it.y(store) - 18, "end of the lease, a little later", "small")
    return it


def hand_off() -> Picture:
    """A hand-off on Redis, within a process and to another one."""
    redis, first, second, third, other = "Redis", "task 1", "task 2", "task 3", "other process"
    it = Picture("A hand-off on Redis: a run of two tasks, then another process", [other, redis, first, second, third])
    it.bar(first, 10, 120, "holds", "hold")
    it.bar(second, 10, 262, "waits", "wait")
    it.bar(third, 10, 372, "waits", "wait")
    it.bar(other, 10, 520, "waits behind them", "wait")
    it.arrow(125, first, 150, redis, "release")
    it.arrow(170, redis, 200, second, "")
    it.text(LEFT + 200, it.y(first) + 4, "one message: tasks 2 and 3 have a run", "small")
    it.arrow(215, second, 240, redis, "")
    it.text(LEFT + 246, it.y(redis) + 28, "one command confirms it", "small")
    it.bar(second, 265, 360, "holds", "hold")
    it.arrow(362, second, 374, third, "no command")
    it.bar(third, 378, 470, "holds", "hold")
    it.arrow(474, third, 500, redis, "end of the run")
    it.arrow(512, redis, 540, other, "one message")
    it.bar(other, 545, 700, "confirms, and holds", "hold")
    it.bar(redis, 10, 145, "task 1", "hold")
    it.bar(redis, 150, 495, "the run", "hold")
    it.bar(redis, 505, 700, "other process", "hold")
    return it


def strict() -> Picture:
    """A failover in strict mode."""
    holder, old, new, waiter = "holder A", "old master", "new master", "caller B"
    it = Picture("A failover in strict mode: the new master grants nothing for a while", [holder, old, new, waiter])
    it.bar(holder, 20, 420, "runs under its lease", "hold")
    it.bar(holder, 420, 520, "Lost", "lost")
    it.arrow(10, holder, 20, old, "")
    it.bar(old, 20, 180, "granted, not replicated yet", "hold")
    it.bar(old, 180, 700, "gone", "off")
    it.bar(new, 20, 200, "replica, without the grant", "off")
    it.bar(new, 200, 560, "quiet time: the longest lease and 2 s", "wait")
    it.bar(new, 560, 700, "grants", "hold")
    it.bar(waiter, 240, 570, "asks, and waits", "wait")
    it.bar(waiter, 580, 700, "holds", "hold")
    it.arrow(245, waiter, 255, new, "")
    it.arrow(565, new, 578, waiter, "granted")
    it.mark(190, holder, waiter, "the master fails")
    it.text(LEFT + 420, it.y(holder) + 26, "at its next renewal, or at its deadline", "small")
    return it


PICTURES = {"call": call, "lease": lease, "hand-off": hand_off, "strict": strict}


def main() -> None:
    stale = []
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        path, drawn = FOLDER / f"{name}.svg", draw().svg()
        if sys.argv[1:] != ["--check"]:
            path.write_text(drawn)
        elif not path.exists() or path.read_text() != drawn:
            stale.append(path.name)
    if stale:
        sys.exit(f"not as scripts/pictures.py draws them: {', '.join(stale)}; run it and commit the pictures")


if __name__ == "__main__":
    main()
