// The workers in JavaScript: `worker.cjs PEER URL FOLDER NUMBER LEASE_MS STEPS SECONDS`, as benches/compare/worker has
// it. Node.js reads the monotonic clock; OFFSET is what CLOCK_BOOTTIME is ahead of it.
const fs = require("fs");
const Redis = require("ioredis");
const { setTimeout: sleep } = require("timers/promises");

const [peer, url, folder, number, ...numbers] = process.argv.slice(2);
const [lease, steps, seconds] = numbers.map(Number);
const offset = BigInt(process.env.OFFSET);
const stay = `${folder}/${number}.stay`;
const log = fs.openSync(`${folder}/${number}.log`, "w");
const client = new Redis(url);
// ioredis connects again by itself. What a caller sees is what its calls return.
client.on("error", () => {});
let lines = "";
let entries = 0;

function flush() {
  fs.writeSync(log, lines);
  lines = "";
}

function write(event, text = "") {
  lines += `${process.hrtime.bigint() + offset} ${event} ${String(text).replaceAll("\n", " ")}\n`;
  // Without work under the lock the lines stay in memory: the time to write them would be measured, too.
  if (steps > 0 || lines.length > 65536) flush();
}

async function section(isHeld) {
  entries += 1;
  write("in");
  for (let done = 0; done < steps || (steps > 0 && fs.existsSync(stay)); done += 1) {
    await sleep(10);
    if (!isHeld()) return write("lost");
    write("work");
  }
  write("out");
}

const turns = {
  redlock() {
    const redlock = new (require("redlock").default)([client]);
    redlock.on("error", () => {});
    return () => redlock.using(["hot"], lease, (signal) => section(() => !signal.aborted));
  },
  "redis-semaphore"() {
    const { Mutex } = require("redis-semaphore");
    return async () => {
      const mutex = new Mutex(client, "hot", { lockTimeout: lease, onLockLost() {} });
      await mutex.acquire();
      try {
        await section(() => mutex.isAcquired);
      } finally {
        await mutex.release();
      }
    };
  },
};

async function main() {
  const turn = turns[peer]();
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end && (steps > 0 || entries < 50_000)) {
    write("wait");
    try {
      await turn();
    } catch (error) {
      write("error", error.message);
      await sleep(10);
    }
  }
  flush();
  process.exit(0);
}

main();
