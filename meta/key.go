package meta

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/varvelog/varve/manifest"
)

// Keys above the incarnations: who is there. No cluster id begins with '@'.
const (
	rootPrefix    = "/varve/"
	clusterPrefix = rootPrefix + "@cluster/" // + cluster id: clusterRecord
	defaultKey    = rootPrefix + "@default"  // the cluster of those who name none
)

// Areas below /varve/<cluster id>/<incarnation>/.
const (
	areaBroker    = "broker"     // broker/<id>, leased
	areaKnown     = "known"      // known/<id>: the registration that the controller last dealt with
	areaDrain     = "drain"      // drain/<id>, leased: the broker is about to stop
	areaTopic     = "topic"      // topic/<name>
	areaDeleted   = "deleted"    // deleted/<topic id>
	areaPartition = "partition"  // partition/<topic id>/<n>
	areaPending   = "pending"    // pending/<topic id>: a chain of transactions on a topic that is under way
	areaConfig    = "config"     // config/<resource>
	areaAttached  = "attached"   // attached/<archive id>
	keyController = "controller" // leased
	keyProducers  = "producerids"
)

// keys makes and reads the keys of one incarnation of one cluster; it is their prefix, with its final slash.
type keys string

func newKeys(cluster string, inc uint32) keys {
	return keys(fmt.Sprintf("%s%s/%d/", rootPrefix, cluster, inc))
}

func (k keys) area(a string) string        { return string(k) + a + "/" }
func (k keys) broker(id int32) string      { return k.area(areaBroker) + strconv.Itoa(int(id)) }
func (k keys) known(id int32) string       { return k.area(areaKnown) + strconv.Itoa(int(id)) }
func (k keys) drain(id int32) string       { return k.area(areaDrain) + strconv.Itoa(int(id)) }
func (k keys) topic(name string) string    { return k.area(areaTopic) + name }
func (k keys) config(res string) string    { return k.area(areaConfig) + res }
func (k keys) attached(a string) string    { return k.area(areaAttached) + a }
func (k keys) controller() string          { return string(k) + keyController }
func (k keys) producers() string           { return string(k) + keyProducers }
func (k keys) deleted(id topicID) string   { return k.area(areaDeleted) + id.String() }
func (k keys) pending(id topicID) string   { return k.area(areaPending) + id.String() }
func (k keys) partitions(t topicID) string { return k.area(areaPartition) + t.String() + "/" }
func (k keys) partition(id manifest.PartitionID) string {
	return k.partitions(id.Topic) + strconv.Itoa(int(id.Partition))
}

type topicID = manifest.TopicID

// parsed is what a key says; which fields are set depends on area.
type parsed struct {
	area   string
	name   string // topic, config resource, archive
	broker int32
	topic  topicID
	part   int32
}

var errKey = errors.New("malformed key")

// parse reads a key that keys made. Keys of areas unknown here have area "": a newer version's, to be left alone.
func (k keys) parse(key string) (parsed, error) {
	rest, ok := strings.CutPrefix(key, string(k))
	if !ok {
		return parsed{}, errKey
	}
	area, name, slash := strings.Cut(rest, "/")
	p := parsed{area: area, name: name}
	var err error
	switch area {
	case areaTopic, areaConfig, areaAttached:
		if name == "" {
			err = errKey
		}
	case areaBroker, areaKnown, areaDrain:
		p.broker, err = parseNumber(name)
	case areaDeleted, areaPending:
		p.topic, err = ParseTopicID(name)
	case areaPartition:
		id, n, _ := strings.Cut(name, "/")
		if p.topic, err = ParseTopicID(id); err == nil {
			p.part, err = parseNumber(n)
		}
	case keyController, keyProducers:
		if slash {
			return parsed{}, nil
		}
	default:
		return parsed{}, nil
	}
	return p, err
}

// ParseTopicID reads a topic id's text form; only the canonical one is accepted.
func ParseTopicID(s string) (manifest.TopicID, error) {
	var id topicID
	if len(s) != 22 {
		return id, errKey
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, errKey
	}
	return topicID(b), nil
}

// parseNumber reads a non-negative int32 in its only form.
func parseNumber(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, errKey
	}
	return int32(n), nil
}

// checkName accepts Kafka's topic names and cluster ids: 1-249 of [a-zA-Z0-9._-], not "." and not "..".
func checkName(what, s string) error {
	ok := len(s) > 0 && len(s) <= 249 && s != "." && s != ".."
	for _, c := range []byte(s) {
		ok = ok && (c == '.' || c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	if !ok {
		return fmt.Errorf("%w: %s %q: want 1 to 249 of [a-zA-Z0-9._-]", ErrInvalid, what, s)
	}
	return nil
}
