"""aiokafka against a broker: produce with every codec, consume in a group, commit, resume, look up by time."""
import asyncio, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

ADDR, TOPIC = sys.argv[1], sys.argv[2]
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
PER = 200


async def main():
    admin = AIOKafkaAdminClient(bootstrap_servers=ADDR)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, 3, 1)])
    want = set()
    for codec in CODECS:
        producer = AIOKafkaProducer(bootstrap_servers=ADDR, compression_type=codec, enable_idempotence=True)
        await producer.start()
        for i in range(PER):
            value = f"{codec}-{i}".encode()
            want.add(value)
            await producer.send(TOPIC, value, key=str(i).encode(), headers=[("codec", str(codec).encode())])
        await producer.flush()
        await producer.stop()

    async def read(n):
        got = []
        c = AIOKafkaConsumer(TOPIC, bootstrap_servers=ADDR, group_id="aio-" + TOPIC, auto_offset_reset="earliest", enable_auto_commit=False)
        await c.start()
        while len(got) < n:
            batch = await asyncio.wait_for(c.getmany(timeout_ms=1000, max_records=n - len(got)), 30)
            for records in batch.values():
                got += [r.value for r in records]
        await c.commit()
        await c.stop()
        return got

    half = len(want) // 2
    first = await read(half)
    second = await read(len(want) - half)
    assert len(first) + len(second) == len(want), (len(first), len(second))
    assert set(first) | set(second) == want, "records differ after commit and resume"
    c = AIOKafkaConsumer(bootstrap_servers=ADDR)
    await c.start()
    tps = [TopicPartition(TOPIC, p) for p in range(3)]
    ends = await c.end_offsets(tps)
    assert sum(ends.values()) == len(want), ends
    at = await c.offsets_for_times({tp: 0 for tp in tps})
    assert all(o.offset == 0 for o in at.values()), at
    await c.stop()
    await admin.close()


asyncio.run(main())
print("ok")
