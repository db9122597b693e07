package config

import (
	"maps"
	"slices"
)

// Source says where a value in force is from; the numbers are those of DescribeConfigs.
type Source int8

const (
	SourceDynamicTopic         Source = 1
	SourceDynamicBroker        Source = 2
	SourceDynamicDefaultBroker Source = 3
	SourceStaticBroker         Source = 4
	SourceDefault              Source = 5
)

// Synonym is another place that could give the value, in order of precedence (KIP-226).
type Synonym struct {
	Name   string
	Value  *string
	Source Source
}

// Entry describes one key of a resource. Value is nil for null and for a secret.
type Entry struct {
	Key       *Key
	Value     *string
	Source    Source
	ReadOnly  bool
	Sensitive bool
	Synonyms  []Synonym
}

// DescribeTopic lists a topic's keys in name order.
func (b *Broker) DescribeTopic(d Dynamic, set map[string]string) []Entry {
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(topicKeys)) {
		k := topicKeys[name]
		e := Entry{Key: k}
		if v, ok := set[name]; ok {
			e.Synonyms = append(e.Synonyms, Synonym{name, &v, SourceDynamicTopic})
		}
		e.Synonyms = append(e.Synonyms, b.chain(d, k)...)
		e.Value, e.Source = e.Synonyms[0].Value, e.Synonyms[0].Source
		out = append(out, e)
	}
	return out
}

// chain lists what a topic key would take from the broker, the one in force first.
func (b *Broker) chain(d Dynamic, k *Key) []Synonym {
	var out []Synonym
	if k.Synonym != "" {
		out = b.values(d, k.Synonym)
		for _, o := range older[k.Synonym] {
			if v, ok := b.set[o.name]; ok {
				out = append(out, Synonym{o.name, &v, SourceStaticBroker})
			}
		}
	}
	if len(out) > 0 {
		if v, src := b.synonym(d, k); src == out[0].Source && out[0].Name != k.Synonym {
			out[0].Value = &v // an older, coarser name: shown in the topic key's unit
		}
	}
	def := k.Default
	name := k.Synonym
	if name == "" {
		name = k.Name
	}
	return append(out, Synonym{name, &def, SourceDefault})
}

// values lists the places that set a broker key, without its default.
func (b *Broker) values(d Dynamic, name string) []Synonym {
	var out []Synonym
	for _, p := range []struct {
		m   map[string]string
		src Source
	}{{d.Broker, SourceDynamicBroker}, {d.Cluster, SourceDynamicDefaultBroker}, {b.set, SourceStaticBroker}} {
		if v, ok := p.m[name]; ok {
			out = append(out, Synonym{name, &v, p.src})
		}
	}
	return out
}

// DescribeBroker lists the broker's keys in name order; only the dynamic cluster-wide ones where cluster is true.
func (b *Broker) DescribeBroker(d Dynamic, cluster bool) []Entry {
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(brokerKeys)) {
		k := brokerKeys[name]
		if cluster {
			if v, ok := d.Cluster[name]; ok {
				out = append(out, Entry{Key: k, Value: &v, Source: SourceDynamicDefaultBroker, Synonyms: []Synonym{{name, &v, SourceDynamicDefaultBroker}}})
			}
			continue
		}
		e := Entry{Key: k, ReadOnly: !k.Dynamic, Sensitive: k.Type == Password, Synonyms: b.values(d, name)}
		if !k.Null {
			def := k.Default
			e.Synonyms = append(e.Synonyms, Synonym{name, &def, SourceDefault})
		}
		e.Source = SourceDefault
		if len(e.Synonyms) > 0 {
			e.Value, e.Source = e.Synonyms[0].Value, e.Synonyms[0].Source
		}
		if e.Sensitive {
			e.Value = nil
		}
		out = append(out, e)
	}
	return out
}
