#!/usr/bin/env python3
"""Changes one place of the code after the other, and asks for each such mutant whether a test fails. A mutant that
survives shows what no test asks for. docs/contributing/mutants.md has the results, and why some may survive.

cargo-mutants names the places. All mutants of a part are compiled at once, into a copy of the tree: a function with
mutants gets a body for each of them, and the variable LOCKER_MUTANT says which one runs. That is "mutant schemata"
(Untch, Offutt, Harrold, 1993): a mutant costs a run of tests, without a build. What cannot be a body, such as one of a
constant function, is compiled alone.

A test that fails is run once more, alone, with the mutant: only if it fails again the mutant is killed. If it passes,
the suite goes on without it. A run without an end, or one that ends without a test that failed, is repeated while no
other runs. So a busy machine kills nothing.

Works for minutes to hours; outcomes are kept in mutants/PART of the build folder, and a run that was interrupted goes
on. Survivors are asked again by the next run, and all of a file that has changed. What was killed stays so when tests
alone change: remove the folder to ask for all.

    scripts/mutants.py PART             primitives, engine, served, lease or macros
    scripts/mutants.py PART --quick     with the first suite alone: survivors may be known to others
    scripts/mutants.py PART --only TEXT --jobs N
                                        mutants whose names contain TEXT, N at a time (default: 4)
    scripts/mutants.py PART --list      the numbers and names
    scripts/mutants.py [PART] --report  what was killed in each file, and what survived
"""

import argparse
import collections
import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
OUT = TARGET / "mutants"
LIBRARIES = subprocess.check_output(["rustc", "--print", "target-libdir"], cwd=ROOT, text=True).strip()
SWITCH = "LOCKER_MUTANT"
TESTS = "-p locker-tests --no-default-features --features _fake,idempotent,tracing"
LAWS = f"{TESTS} --test behaviour"
# Each suite: how long a run may take in seconds, the arguments of cargo that build it, those of the test program.
# A later suite gets what the ones before have left.
PARTS = {
    "primitives": {
        "list": "--package locker-core --file locker-core/src/primitives/** --exclude **/samples.rs"
        " --features _cas,serde,tower",
        "crate": "locker-core",
        "suites": [
            (60, "-p locker-core --features _cas,serde,tower --lib", "primitives"),
            (300, "-p locker-cas --all-features --lib", "--test-threads=16"),
            (300, LAWS, "memory:: served_clock:: --test-threads=16"),
        ],
    },
    "engine": {
        "list": "--package locker-cas --file stores/cas/src/** --exclude **/fake.rs --exclude **/fake/**"
        " --exclude **/contract.rs --exclude **/contract/** --exclude **/fuzz.rs --all-features"
        # Drivers are below it: only tests of stores with servers use it.
        " --exclude **/served.rs --exclude **/served/**",
        "crate": "stores/cas",
        "suites": [
            (300, "-p locker-cas --all-features --lib", "--test-threads=16"),
            (300, LAWS, "served_clock:: ticked_clock:: --include-ignored --test-threads=16"),
        ],
    },
    "served": {
        "list": "--package locker-cas --file stores/cas/src/served.rs --file stores/cas/src/served/** --all-features",
        "crate": "stores/cas",
        "suites": [
            (300, "-p locker-cas --all-features --lib", "served:: --test-threads=16"),
            # They start a server.
            (300, "-p locker-postgres --all-features --lib", "--test-threads=8"),
            (300, "-p locker-mysql --all-features --lib", "--test-threads=8"),
        ],
    },
    "lease": {
        "list": "--package locker-runtime --file locker-runtime/src/lease/** --all-features",
        "crate": "locker-runtime",
        "suites": [
            (120, "-p locker-runtime --all-features --lib", "--test-threads=8"),
            (120, f"{TESTS} --test embedded", "lease:: blocking:: cancel_safety:: misuse:: --test-threads=16"),
            # Without those that start a compiler.
            (120, f"{TESTS} --test attributes", "--skip refused:: --skip announced:: --test-threads=16"),
            (120, f"{TESTS},metrics --test metrics", ""),
            (120, f"{TESTS} --test spans", ""),
            (300, LAWS, "memory:: served_clock:: --test-threads=16"),
            (120, "-p locker-forks --test forks", ""),
        ],
    },
    "macros": {
        "list": "--package locker-macros --file locker-macros/src/validate/** --file locker-macros/src/parse/**"
        " --file locker-macros/src/{attribute,ranges,validate}.rs",
        "crate": "locker-macros",
        "suites": [(60, "-p locker-macros --lib", "")],
    },
}
NO_END = "no end"
IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
# Comments, strings, raw strings, characters (but not lifetimes): what may contain a brace that is none.
LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(\#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^\\'])'""", re.DOTALL
)


# The test programs that run, to be ended with this one.
running, is_over = set(), threading.Event()
# How often the tests of a suite that fail with others but not alone are left out, before the next suite is asked.
FLAKES = 3


def environment():
    """The models walk through thousands of random histories; inputs that proptest keeps would find the next mutants."""
    return os.environ | {
        # For test programs of procedural macros.
        "LD_LIBRARY_PATH": LIBRARIES,
        "CARGO_TARGET_DIR": str(OUT / "build"),
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
        "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",
        # A mutant leaves variables unused.
        "RUSTFLAGS": "--cap-lints=warn",
        # A test that is skipped knows nothing.
        "CI": "true",
    }


def all_mutants(part):
    tools = OUT / "tools"
    path = f"{tools / 'bin'}:{os.environ['PATH']}"
    if not shutil.which("cargo-mutants", path=path):
        install = ["cargo", "install", "--quiet", "--locked", "cargo-mutants"]
        subprocess.run([*install, "--root", tools, "--target-dir", tools / "target"], check=True)
    arguments = "--exclude **/tests/** --exclude **/tests.rs --exclude-re impl.(fmt::)?Debug".split()
    listed = subprocess.run(
        ["cargo", "mutants", "--list", "--json", *PARTS[part]["list"].split(), *arguments],
        cwd=ROOT, env=os.environ | {"PATH": path}, stdout=subprocess.PIPE, check=True,
    )
    mutants = json.loads(listed.stdout)
    for number, mutant in enumerate(mutants, 1):
        mutant["number"] = number
        mutant["text"] = text_of(mutant["file"])
    return mutants


def text_of(name):
    """Names of mutants have numbers of lines, so they say something of one text of the file alone."""
    return hashlib.sha256((ROOT / name).read_bytes()).hexdigest()[:16]


def copy_tree(tree):
    """Copies what changed, so that nothing else is compiled again."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = set(filter(None, subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")))
    for copy in tree.rglob("*.rs"):
        if str(copy.relative_to(tree)) not in names:
            copy.unlink()
    for name in names:
        source, copy = ROOT / name, tree / name
        if source.is_file() and not (copy.is_file() and copy.read_bytes() == source.read_bytes()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)


# At the end of the crate's root.
CHOICE = f"""
mod mutant_switch {{
    /// The number of the mutant that runs in this process, 0 for none.
    pub fn active() -> u32 {{
        static ACTIVE: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        *ACTIVE.get_or_init(|| std::env::var("{SWITCH}").map_or(0, |number| number.parse().unwrap()))
    }}
}}
"""


class Source:
    """A file with mutants, or the root of the crate."""

    def __init__(self, name):
        self.name = name
        self.text = (ROOT / name).read_text()
        self.lines = [0]
        for line in self.text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))

    def span(self, span):
        start, end = (self.lines[at["line"] - 1] + at["column"] - 1 for at in (span["start"], span["end"]))
        return start, end

    def body(self, function):
        """Where the braces of a function are, and whether it may choose between bodies."""
        start, end = self.span(function["span"])
        text = LITERAL.sub(lambda found: " " * len(found[0]), self.text[start:end])
        opened = []
        for at, character in enumerate(text):
            if character == "{":
                opened.append(at)
            elif character == "}":
                opening = opened.pop()
        header = text[:opening]
        fits = not re.search(r"\bconst\s+(unsafe\s+)?fn\b|->\s*impl\b", header)
        return start + opening, end, fits

    def mutated(self, mutant, start=0, end=None):
        first, last = self.span(mutant["span"])
        return self.text[start:first] + mutant["replacement"] + self.text[last:end]

    def woven(self, mutants):
        """The text with a body for each of the mutants."""
        functions = collections.defaultdict(list)
        for mutant in mutants:
            functions[self.body(mutant["function"])[:2]].append(mutant)
        text, edits = self.text, []
        # From the last to the first, so that functions within others come before those.
        for (start, end), inside in sorted(functions.items(), reverse=True):
            moved = end + sum(length for at, length in edits if start < at < end)
            arms = "".join(f"\n/*<{m['number']}*/ {m['number']} => {self.mutated(m, start, end)}\n" for m in inside)
            choice = "{ match crate::mutant_switch::active() {" + arms + "/*>*/ _ => " + text[start:moved] + "\n} }"
            edits.append((start, len(choice) - (moved - start)))
            text = text[:start] + choice + text[moved:]
        return text


def weave(tree, root, sources, mutants):
    """Writes the files with their mutants, and into the `root` of the crate what chooses one."""
    by_file = collections.defaultdict(list)
    for mutant in mutants:
        by_file[mutant["file"]].append(mutant)
    for name, source in sources.items():
        text = source.woven(by_file[name])
        write(tree / name, text + CHOICE if name == root else text)


def write(path, text):
    if path.read_text() != text:
        path.write_text(text)


def cargo(tree, command, arguments):
    """Runs cargo, and returns its messages and whether it succeeded."""
    done = subprocess.run(
        ["cargo", *command, "--message-format=json", "--quiet", *arguments.split()],
        cwd=tree, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")], done.returncode == 0


def is_error(message):
    return message["reason"] == "compiler-message" and message["message"]["level"] == "error"


def culprits(tree, messages):
    """The mutants in which the compiler found errors, and errors elsewhere."""
    numbers, elsewhere = set(), []
    for message in messages:
        if not is_error(message):
            continue
        found = set()
        for span in filter(lambda span: span["is_primary"], message["message"]["spans"]):
            while span:
                path = tree / span["file_name"]
                found |= {arm_at(path, span["line_start"])} if path.is_file() else set()
                span = span["expansion"] and span["expansion"]["span"]
        found.discard(None)
        numbers |= found
        if not found and message["message"]["spans"]:
            elsewhere.append(message["message"]["rendered"])
    return numbers, elsewhere


def arm_at(path, line):
    for text in reversed(path.read_text().splitlines()[:line]):
        if found := re.match(r"/\*(?:<(\d+)|>)\*/", text):
            return found[1] and int(found[1])
    return None


def build(tree, arguments):
    """Builds a test program. Returns it with its folder, or None if the code is wrong."""
    messages, success = cargo(tree, ["test", "--no-run"], arguments)
    if not success:
        rendered = [m["message"]["rendered"] for m in messages if is_error(m)]
        return None if rendered else sys.exit(f"cargo test --no-run {arguments} ends without an error of the compiler")
    tests = [m for m in messages if m["reason"] == "compiler-artifact" and m["profile"]["test"] and m["executable"]]
    return tests[-1]["executable"], pathlib.Path(tests[-1]["manifest_path"]).parent


def run(program, arguments, seconds, number, log):
    """Runs a test program until its end or the first failure. Returns None, or what failed."""
    executable, folder = program
    end = time.monotonic() + seconds
    # What its servers leave behind when they are killed goes with the folder.
    with open(log, "w") as output, tempfile.TemporaryDirectory(dir=IN_MEMORY, ignore_cleanup_errors=True) as place:
        # Servers run as another user.
        os.chmod(place, 0o755)
        process = subprocess.Popen(
            [executable, *arguments.split()], cwd=folder,
            env=environment() | {SWITCH: str(number), "TMPDIR": place, "LOCKER_TEST_MEMORY": place},
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )
        running.add(process)
        try:
            while process.poll() is None and not is_over.is_set():
                if failed := failed_test(log):
                    return failed
                if time.monotonic() > end:
                    return NO_END
                time.sleep(0.05)
        finally:
            end_group(process)
            running.discard(process)
    return None if process.returncode == 0 else failed_test(log) or f"exit {process.returncode}"


def failed_test(log):
    failed = re.search(r"^test (\S+) .*\.\.\. FAILED", log.read_text(errors="replace"), re.MULTILINE)
    return failed and failed[1]


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Doubtful(Exception):
    """A run without an end, or without a test that failed, beside others: to be repeated alone."""


def attempt(suites, program_of, number, logs, is_alone=False):
    """Asks one suite after the other."""
    for at, (seconds, build_arguments, arguments) in enumerate(suites):
        program = program_of(build_arguments)
        if program is None:
            return "no build", ""
        log = logs / f"{number}.{at}.log"
        for _ in range(FLAKES):
            if is_over.is_set():
                return "interrupted", ""
            failed = run(program, arguments, seconds, number, log)
            if not failed:
                break
            if failed == NO_END or failed.startswith("exit"):
                if is_alone:
                    return "killed", failed
                raise Doubtful
            alone = f"{failed} --exact --include-ignored"
            if run(program, alone, seconds, number, log.with_suffix(".alone.log")):
                return "killed", failed
            arguments += f" --skip {failed}"
    return "survived", ""


def jobs(text):
    if text.isdigit() and 1 <= int(text) <= 64:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is out of range: give 1 to 64")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--jobs", type=jobs, default=4, metavar="N")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if options.report:
        return report(options.part)
    if not options.part:
        parser.error(f"give a part: one of {', '.join(PARTS)}")
    part = PARTS[options.part]
    suites = part["suites"][:1] if options.quick else part["suites"]
    mutants = all_mutants(options.part)
    named = [m for m in mutants if options.only in m["name"]]
    if not named:
        parser.error(f"no mutant of {options.part} has {options.only!r} in its name: --list shows them")
    if options.list:
        for mutant in named:
            print(mutant["number"], mutant["name"])
        return None

    folder, tree = OUT / options.part, OUT / "tree"
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    lock = open(OUT / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another run works in {OUT}")
    for ending in signal.SIGTERM, signal.SIGHUP:
        signal.signal(ending, lambda number, _: sys.exit(f"ended by {signal.Signals(number).name}"))
    outcomes = folder / "outcomes.jsonl"
    known = {(o["name"], o["text"]) for o in read(outcomes) if o["outcome"] != "survived"}
    wanted = [m for m in named if (m["name"], m["text"]) not in known]
    copy_tree(tree)
    root = f"{part['crate']}/src/lib.rs"
    sources = {name: Source(name) for name in sorted({root, *(m["file"] for m in mutants)})}
    together = [m for m in wanted if m["function"] and sources[m["file"]].body(m["function"])[2]]
    alone = [m for m in wanted if m not in together]

    def record(mutant, outcome, by=""):
        with open(outcomes, "a") as file:
            line = {key: mutant[key] for key in ("name", "file", "text")} | {"outcome": outcome, "by": by}
            file.write(json.dumps(line) + "\n")
        print(f"{outcome:12} {mutant['name']}  {by}", flush=True)

    while True:
        weave(tree, root, sources, together)
        checks = (cargo(tree, ["check", "--profile=test"], arguments) for _, arguments, _ in suites)
        messages = next((messages for messages, success in checks if not success), None)
        if messages is None:
            break
        broken, elsewhere = culprits(tree, messages)
        if not broken:
            sys.exit("the tree with the mutants does not compile:\n" + "\n".join(elsewhere or map(str, messages)))
        for mutant in (m for m in together if m["number"] in broken):
            record(mutant, "no build")
        together = [m for m in together if m["number"] not in broken]

    programs = {arguments: build(tree, arguments) for _, arguments, _ in suites}
    if None in programs.values():
        sys.exit("the tests do not compile")
    for seconds, build_arguments, arguments in suites:
        if failed := run(programs[build_arguments], arguments, seconds, 0, folder / "logs/0.log"):
            sys.exit(f"without a mutant the tests fail ({failed}); {folder / 'logs/0.log'} says how")
    pool, doubtful = concurrent.futures.ThreadPoolExecutor(options.jobs), []
    try:
        tried = {pool.submit(attempt, suites, programs.get, m["number"], folder / "logs"): m for m in together}
        for done in concurrent.futures.as_completed(tried):
            try:
                record(tried[done], *done.result())
            except Doubtful:
                doubtful.append(tried[done])
    finally:
        is_over.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(running):
            end_group(process)

    is_over.clear()
    for mutant in doubtful:
        record(mutant, *attempt(suites, programs.get, mutant["number"], folder / "logs", is_alone=True))
    weave(tree, root, sources, [])
    for mutant in alone:
        source = sources[mutant["file"]]
        write(tree / mutant["file"], source.mutated(mutant))
        outcome = attempt(
            suites, lambda arguments: build(tree, arguments), mutant["number"], folder / "logs", is_alone=True
        )
        write(tree / mutant["file"], source.text)
        if outcome[0] == "no build" and None in [build(tree, arguments) for _, arguments, _ in suites]:
            sys.exit("the tree does not compile any more without a mutant")
        record(mutant, *outcome)
    report(options.part)


def read(outcomes):
    if not outcomes.is_file():
        return []
    # A full disk may have cut the last line.
    return [json.loads(line) for line in outcomes.read_text().splitlines() if line.endswith("}")]


def report(part=None):
    for outcomes in sorted(OUT.glob(f"{part or '*'}/outcomes.jsonl")):
        texts = {path: text_of(path) for path in {o["file"] for o in read(outcomes)} if (ROOT / path).is_file()}
        last = {o["name"]: o for o in read(outcomes) if o["text"] == texts.get(o["file"])}
        killed, survived = collections.Counter(), collections.defaultdict(list)
        for outcome in last.values():
            if outcome["outcome"] == "survived":
                survived[outcome["file"]].append(outcome["name"])
            elif outcome["outcome"] == "killed":
                killed[outcome["file"]] += 1
        print(f"\n{outcomes.parent.name}")
        for file in sorted({*killed, *survived}):
            total = killed[file] + len(survived[file])
            print(f"{killed[file]:5} of {total:4}  {100 * killed[file] / total:3.0f} %  {file}")
        total = killed.total() + sum(map(len, survived.values()))
        print(f"{killed.total():5} of {total:4}  {100 * killed.total() / max(total, 1):3.0f} %")
        for name in sorted(sum(survived.values(), [])):
            print(f"survived: {name}")


if __name__ == "__main__":
    main()
