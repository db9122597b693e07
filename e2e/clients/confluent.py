"""confluent-kafka (librdkafka) against a broker: admin, produce with every codec, group with commit and resume."""
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

ADDR, TOPIC = sys.argv[1], sys.argv[2]
admin = AdminClient({"bootstrap.servers": ADDR})
admin.create_topics([NewTopic(TOPIC, 2, 1, config={"retention.ms": "86400000"})])[TOPIC].result(20)
res = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
entries = admin.describe_configs([res])[res].result(20)
assert entries["retention.ms"].value == "86400000", entries["retention.ms"]

want, errors = set(), []
for codec in ["none", "gzip", "snappy", "lz4", "zstd"]:
    p = Producer({"bootstrap.servers": ADDR, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5})
    for i in range(200):
        v = f"{codec}-{i}".encode()
        want.add(v)
        p.produce(TOPIC, v, key=str(i), on_delivery=lambda e, m: errors.append(e) if e else None)
    p.flush(30)
assert not errors, errors[:3]


def read(n):
    c = Consumer({"bootstrap.servers": ADDR, "group.id": "cf-" + TOPIC, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    c.subscribe([TOPIC])
    got, quiet = [], 0
    while len(got) < n and quiet < 60:
        m = c.poll(0.5)
        if m is None:
            quiet += 1
            continue
        assert not m.error(), m.error()
        got.append(m.value())
    c.commit(asynchronous=False)
    c.close()
    return got


half = len(want) // 2
first, second = read(half), read(len(want) - half)
assert len(first) + len(second) == len(want) and set(first) | set(second) == want, (len(first), len(second), len(want))
c = Consumer({"bootstrap.servers": ADDR, "group.id": "x"})
low, high = c.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)
assert low == 0 and high > 0, (low, high)
c.close()
print("ok")
