// Graphile Worker: a local queue of 500, completions gathered, 24 jobs at a time (the settings of
// its own performance test).
const fs = require("node:fs");
const { createRequire } = require("node:module");

const there = createRequire(`${process.env.BENCH_NODE_HOME}/`);
const { run, makeWorkerUtils, Logger } = there("graphile-worker");

const connectionString = process.env.BENCH_URL;
const pid = BigInt(process.pid);
const writeEvery = 10; // milliseconds
let descriptor = null;
let begun = [];

// Notes that are written down later: a write for each would cost more than some tasks.
function record(number) {
  if (begun.length === 0) setTimeout(write, writeEvery);
  begun.push([number, process.hrtime.bigint()]);
}

function write() {
  descriptor ??= fs.openSync(process.env.BENCH_RECORD, "a");
  const notes = new BigInt64Array(begun.flatMap(([number, at]) => [BigInt(number), pid, at]));
  begun = [];
  fs.writeSync(descriptor, new Uint8Array(notes.buffer));
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const now = () => Number(process.hrtime.bigint()) / 1e9;

async function withUtils(act) {
  const utils = await makeWorkerUtils({ connectionString });
  try {
    return await act(utils);
  } finally {
    await utils.release();
  }
}

const actions = {
  setup: () => withUtils(async (utils) => (await utils.migrate(), {})),

  one: ({ first, count, apart = 0 }) =>
    withUtils(async (utils) => {
      await utils.withPgClient((client) => client.query("SELECT 1"));
      const committed = [];
      const begun = now();
      for (let place = 0; place < count; place++) {
        await utils.addJob("noop", { n: first + place });
        committed.push(Number(process.hrtime.bigint()));
        if (apart) await sleep(Math.max(0, (begun + (place + 1) * apart - now()) * 1000));
      }
      return { seconds: now() - begun, committed };
    }),

  bulk: ({ first, count }) =>
    withUtils(async (utils) => {
      const jobs = Array.from({ length: count }, (_, place) => ({
        identifier: "noop",
        payload: { n: first + place },
      }));
      const begun = now();
      await utils.addJobs(jobs);
      return { seconds: now() - begun };
    }),

  work: async () => {
    process.stdout.write("ready\n");
    await new Promise((resolve) => process.stdin.once("data", resolve));
    process.stdin.destroy();
    const runner = await run({
      connectionString,
      taskList: { noop: async (payload) => record(payload.n) },
      logger: new Logger(() => () => {}),
      preset: {
        worker: {
          concurrentJobs: 24,
          maxPoolSize: 25,
          localQueue: { size: 500 },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    });
    await runner.promise;
    return {};
  },
};

const { action, ...told } = JSON.parse(process.argv[2]);
actions[action](told).then((answer) => console.log(JSON.stringify(answer)));
