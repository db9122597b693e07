package manifest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Keys are relative to the archive's prefix. Numbers are zero-padded, so that the byte order of a LIST is the order of
// precedence, and a parser accepts only what its constructor makes. Each kind has a folder of its own and file names
// without a slash, so that no key is the path prefix of another.
//
//	archive.json
//	inc/<inc,10>.claim  inc/<inc,10>.seal
//	lease/<id>
//	c/<cluster id>/...
//	t/<topic id>/topic.<n,20>
//	t/<topic id>/<partition,10>/s/<base,20>-<last,20>-<leader epoch,10>-<random,16 hex>
//	t/<topic id>/<partition,10>/m/<inc,10>-<leader epoch,10>-<n,20>
//	t/<topic id>/<partition,10>/g/<inc,10>-<leader epoch,10>-<n,20>-<i,4>
const (
	ArchiveKey        = "archive.json"
	IncarnationPrefix = "inc/"
	LeasePrefix       = "lease/"
	TopicsPrefix      = "t/"
	ClustersPrefix    = "c/"
)

// MaxGroups bounds the groups that one manifest may write: the last number that fits its key.
const MaxGroups = 10000

// ClaimKey and SealKey name the two objects of an incarnation (PROTOCOLS 2.2).
func ClaimKey(inc uint32) string { return fmt.Sprintf("inc/%010d.claim", inc) }
func SealKey(inc uint32) string  { return fmt.Sprintf("inc/%010d.seal", inc) }

// ParseIncarnationKey parses both kinds; seal tells which.
func ParseIncarnationKey(key string) (inc uint32, seal, ok bool) {
	k := keyParser{rest: key, ok: true}
	k.lit(IncarnationPrefix)
	inc = uint32(k.digits(10, math.MaxUint32))
	switch k.rest {
	case ".claim":
	case ".seal":
		seal = true
	default:
		k.ok = false
	}
	if !k.ok {
		return 0, false, false
	}
	return inc, seal, true
}

// LeaseKey names a lease. The id has letters, digits, '-' and '_' only; see ParseLeaseKey.
func LeaseKey(id string) string { return LeasePrefix + id }

// ParseLeaseKey returns the id of a lease.
func ParseLeaseKey(key string) (id string, ok bool) {
	id, ok = strings.CutPrefix(key, LeasePrefix)
	return id, ok && plainName(id)
}

// ClusterPrefix begins everything that belongs to one cluster and not to a topic.
func ClusterPrefix(cluster string) string { return ClustersPrefix + cluster + "/" }

// TopicPrefix begins everything of a topic, PartitionPrefix of a partition.
func TopicPrefix(id TopicID) string { return TopicsPrefix + id.String() + "/" }

func PartitionPrefix(p PartitionID) string {
	return fmt.Sprintf("t/%s/%010d/", p.Topic, p.Partition)
}

// TopicRecordPrefix begins a topic's records; they sort before its partitions' keys or after, never among them.
func TopicRecordPrefix(id TopicID) string { return TopicPrefix(id) + "topic." }

// TopicRecordKey names the n-th record of a topic.
func TopicRecordKey(id TopicID, n uint64) string {
	return fmt.Sprintf("t/%s/topic.%020d", id, n)
}

// ParseTopicRecordKey is the inverse of TopicRecordKey.
func ParseTopicRecordKey(key string) (id TopicID, n uint64, ok bool) {
	k := keyParser{rest: key, ok: true}
	k.lit(TopicsPrefix)
	id = k.topic()
	k.lit("/topic.")
	n = k.digits(20, math.MaxUint64)
	return id, n, k.done()
}

// SegmentPrefix, ManifestPrefix and GroupPrefix begin the three kinds of objects of a partition.
func SegmentPrefix(p PartitionID) string  { return PartitionPrefix(p) + "s/" }
func ManifestPrefix(p PartitionID) string { return PartitionPrefix(p) + "m/" }
func GroupPrefix(p PartitionID) string    { return PartitionPrefix(p) + "g/" }

// ManifestName is what a manifest's key says: precedence is inc, then epoch, then n.
type ManifestName struct {
	Partition   PartitionID
	Incarnation uint32
	LeaderEpoch int32
	N           uint64
}

// ManifestKey names a manifest. There is no random part: two writers of the same number must collide (PROTOCOLS 1.1).
func ManifestKey(p PartitionID, inc uint32, epoch int32, n uint64) string {
	return fmt.Sprintf("t/%s/%010d/m/%010d-%010d-%020d", p.Topic, p.Partition, inc, epoch, n)
}

// Key is ManifestKey of the name.
func (m ManifestName) Key() string {
	return ManifestKey(m.Partition, m.Incarnation, m.LeaderEpoch, m.N)
}

// ManifestIncarnationPrefix begins the manifests of one incarnation; the last key below it is the partition's tip.
func ManifestIncarnationPrefix(p PartitionID, inc uint32) string {
	return fmt.Sprintf("%s%010d-", ManifestPrefix(p), inc)
}

// ParseManifestKey is the inverse of ManifestKey.
func ParseManifestKey(key string) (ManifestName, bool) {
	k := keyParser{rest: key, ok: true}
	m := ManifestName{Partition: k.partition("m")}
	k.version(&m)
	return m, k.done()
}

// GroupName is what a group's key says: the manifest that it was written for, and which of its groups it is.
type GroupName struct {
	ManifestName
	I int32
}

// GroupKey names the i-th group that a manifest writes, 0 <= i < MaxGroups.
func GroupKey(p PartitionID, inc uint32, epoch int32, n uint64, i int) string {
	return fmt.Sprintf("t/%s/%010d/g/%010d-%010d-%020d-%04d", p.Topic, p.Partition, inc, epoch, n, i)
}

// Key is GroupKey of the name.
func (g GroupName) Key() string {
	return GroupKey(g.Partition, g.Incarnation, g.LeaderEpoch, g.N, int(g.I))
}

// ParseGroupKey is the inverse of GroupKey.
func ParseGroupKey(key string) (GroupName, bool) {
	k := keyParser{rest: key, ok: true}
	g := GroupName{ManifestName: ManifestName{Partition: k.partition("g")}}
	k.version(&g.ManifestName)
	k.lit("-")
	g.I = int32(k.digits(4, MaxGroups-1))
	return g, k.done()
}

// SegmentName is what a segment object's key says. Last is inclusive. Random keeps keys from ever being reused.
type SegmentName struct {
	Partition   PartitionID
	Base, Last  int64
	LeaderEpoch int32
	Random      uint64
}

// SegmentKey names a segment object, rolled or tail, with the offsets of its first and last record.
func SegmentKey(p PartitionID, base, last int64, epoch int32, random uint64) string {
	b := appendPartition(make([]byte, 0, 112), p, "s")
	b = appendDigits(b, uint64(base), 20)
	b = appendDigits(append(b, '-'), uint64(last), 20)
	b = appendDigits(append(b, '-'), uint64(epoch), 10)
	b = append(b, '-')
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[random>>shift&15])
	}
	return string(b)
}

// Key is SegmentKey of the name.
func (s SegmentName) Key() string {
	return SegmentKey(s.Partition, s.Base, s.Last, s.LeaderEpoch, s.Random)
}

// ParseSegmentKey is the inverse of SegmentKey.
func ParseSegmentKey(key string) (SegmentName, bool) {
	k := keyParser{rest: key, ok: true}
	s := SegmentName{Partition: k.partition("s")}
	s.Base = int64(k.digits(20, math.MaxInt64))
	k.lit("-")
	s.Last = int64(k.digits(20, math.MaxInt64))
	k.lit("-")
	s.LeaderEpoch = int32(k.digits(10, math.MaxInt32))
	k.lit("-")
	s.Random = k.hex16()
	return s, k.done() && s.Base <= s.Last
}

// ParsePartitionKey returns the partition of any key below a partition's prefix and what follows the prefix.
func ParsePartitionKey(key string) (p PartitionID, rest string, ok bool) {
	k := keyParser{rest: key, ok: true}
	k.lit(TopicsPrefix)
	p.Topic = k.topic()
	k.lit("/")
	p.Partition = int32(k.digits(10, math.MaxInt32))
	k.lit("/")
	return p, k.rest, k.ok
}

// keyParser eats a key from its front; after the first mismatch ok is false and everything else is zero.
type keyParser struct {
	rest string
	ok   bool
}

func (k *keyParser) done() bool { return k.ok && k.rest == "" }

func (k *keyParser) take(n int) string {
	if !k.ok || len(k.rest) < n {
		k.ok = false
		return ""
	}
	s := k.rest[:n]
	k.rest = k.rest[n:]
	return s
}

func (k *keyParser) lit(s string) {
	if k.take(len(s)) != s {
		k.ok = false
	}
}

func (k *keyParser) digits(width int, limit uint64) uint64 {
	s := k.take(width)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			k.ok = false
			return 0
		}
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil || v > limit {
		k.ok = false
		return 0
	}
	return v
}

func (k *keyParser) hex16() uint64 {
	s := k.take(16)
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			k.ok = false
			return 0
		}
	}
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		k.ok = false
	}
	return v
}

func (k *keyParser) topic() TopicID {
	id, err := ParseTopicID(k.take(topicIDLen))
	if err != nil {
		k.ok = false
	}
	return id
}

func (k *keyParser) partition(kind string) PartitionID {
	k.lit(TopicsPrefix)
	p := PartitionID{Topic: k.topic()}
	k.lit("/")
	p.Partition = int32(k.digits(10, math.MaxInt32))
	k.lit("/" + kind + "/")
	return p
}

func (k *keyParser) version(m *ManifestName) {
	m.Incarnation = uint32(k.digits(10, math.MaxUint32))
	k.lit("-")
	m.LeaderEpoch = int32(k.digits(10, math.MaxInt32))
	k.lit("-")
	m.N = k.digits(20, math.MaxUint64)
}

// A manifest's decoder makes hundreds of segment keys, so they are not left to fmt. A negative number, which no key may
// have, comes out as one that no parser takes.
func appendPartition(b []byte, p PartitionID, kind string) []byte {
	b = append(b, TopicsPrefix...)
	b = topicIDText.AppendEncode(b, p.Topic[:])
	b = appendDigits(append(b, '/'), uint64(p.Partition), 10)
	b = append(b, '/')
	b = append(b, kind...)
	return append(b, '/')
}

func appendDigits(b []byte, v uint64, width int) []byte {
	at := len(b)
	for range width {
		b = append(b, '0')
	}
	for i := len(b) - 1; v > 0; i-- {
		if i < at {
			return append(b, '!')
		}
		b[i] = byte('0' + v%10)
		v /= 10
	}
	return b
}

func plainName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}
