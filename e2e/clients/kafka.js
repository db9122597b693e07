// kafkajs against a broker: admin, produce (none and gzip), group with commit, look-ups.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");
const [addr, topic] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs-test", brokers: [addr], logLevel: logLevel.ERROR });

(async () => {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 1 }] });
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const want = new Set();
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const messages = Array.from({ length: 300 }, (_, i) => ({ key: String(i), value: `${compression}-${i}`, headers: { c: String(compression) } }));
    messages.forEach((m) => want.add(m.value));
    await producer.send({ topic, compression, acks: -1, messages });
  }
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: "js-" + topic });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const got = new Set();
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`only ${got.size} of ${want.size} records`)), 60000);
    consumer.run({
      eachMessage: async ({ message }) => {
        got.add(message.value.toString());
        if (got.size === want.size) { clearTimeout(timer); resolve(); }
      },
    }).catch(reject);
  });
  await consumer.disconnect();
  for (const v of want) if (!got.has(v)) throw new Error("missing " + v);
  const offsets = await admin.fetchTopicOffsets(topic);
  const total = offsets.reduce((n, o) => n + Number(o.high), 0);
  if (total !== want.size) throw new Error("end offsets add up to " + total);
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  console.log("ok");
})().catch((e) => { console.error(e); process.exit(1); });
