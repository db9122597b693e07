package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Broker is a broker's static configuration, as its file, environment and flags gave it. Immutable.
type Broker struct {
	set map[string]string
}

// New checks every key and value; unknown ones are an error with a suggestion. inert lists keys that were accepted for
// Kafka's sake and change nothing.
func New(props map[string]string) (b *Broker, inert []string, err error) {
	b = &Broker{set: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		k := brokerKeys[name]
		if k == nil {
			if slices.Contains(inertKeys, name) {
				inert = append(inert, name)
				continue
			}
			return nil, nil, unknown("broker", name, brokerKeys)
		}
		if err := k.Check(props[name]); err != nil {
			return nil, nil, err
		}
		if k.Inert {
			inert = append(inert, name)
		}
		b.set[name] = strings.TrimSpace(props[name])
	}
	if len(b.List("log.dirs")) > 1 {
		return nil, nil, &InvalidError{Key: "log.dirs", Value: b.String("log.dirs"), Reason: "one data directory is supported"}
	}
	if id, ok := b.set["broker.id"]; ok {
		if n, both := b.set["node.id"]; both && n != id {
			return nil, nil, &InvalidError{Key: "broker.id", Value: id, Reason: "differs from node.id=" + n}
		}
		b.set["node.id"] = id
	}
	return b, inert, nil
}

// With returns the configuration with more keys set, checked as New does.
func (b *Broker) With(props map[string]string) (*Broker, error) {
	all := maps.Clone(b.set)
	maps.Copy(all, props)
	n, _, err := New(all)
	return n, err
}

// IsSet tells whether the key was given a value.
func (b *Broker) IsSet(name string) bool { _, ok := b.set[name]; return ok }

// text returns the value in force: set, or the default; ok is false for null.
func (b *Broker) text(name string) (string, bool) {
	if v, ok := b.set[name]; ok {
		return v, true
	}
	k := brokerKeys[name]
	if k == nil {
		panic("invariant broken: no broker key " + name)
	}
	return k.Default, !k.Null
}

// String, Int, Float, Bool and List return the value in force, the zero value for null. The name must be a broker key.
func (b *Broker) String(name string) string { v, _ := b.text(name); return v }

func (b *Broker) Int(name string) int64 { v, _ := b.text(name); return number(v) }

func (b *Broker) Bool(name string) bool { v, _ := b.text(name); return strings.EqualFold(v, "true") }

func (b *Broker) List(name string) []string { v, _ := b.text(name); return SplitList(v) }

func number(v string) int64 {
	n, _ := strconv.ParseInt(v, 10, 64)
	return n
}

// Dir is the data directory.
func (b *Broker) Dir() string {
	if d := b.List("log.dirs"); len(d) == 1 {
		return d[0]
	}
	return b.String("log.dir")
}

// Address is one listener: NAME://host:port.
type Address struct {
	Name, Host string
	Port       int32
}

// Listeners parses listeners, and advertised.listeners, which default to them. An empty host of an advertised listener is
// the caller's to fill.
func (b *Broker) Listeners() (bind, advertised []Address, err error) {
	if bind, err = b.addresses("listeners"); err != nil {
		return nil, nil, err
	}
	if len(bind) == 0 {
		return nil, nil, &InvalidError{Key: "listeners", Reason: "at least one listener is needed"}
	}
	if advertised, err = b.addresses("advertised.listeners"); err != nil {
		return nil, nil, err
	}
	names := map[string]bool{}
	for _, l := range bind {
		names[l.Name] = true
	}
	for _, a := range advertised {
		if !names[a.Name] {
			return nil, nil, &InvalidError{Key: "advertised.listeners", Value: b.String("advertised.listeners"), Reason: "no listener is named " + a.Name}
		}
	}
	if len(advertised) == 0 {
		advertised = bind
	}
	return bind, advertised, nil
}

func (b *Broker) addresses(key string) ([]Address, error) {
	var out []Address
	for _, text := range b.List(key) {
		bad := func(reason string) error { return &InvalidError{Key: key, Value: text, Reason: reason} }
		name, hostPort, ok := strings.Cut(text, "://")
		if !ok || name == "" {
			return nil, bad("must be NAME://HOST:PORT")
		}
		if slices.Contains(b.List("controller.listener.names"), name) {
			continue
		}
		if p := b.protocol(name); p != "PLAINTEXT" {
			return nil, bad(fmt.Sprintf("protocol %s is not served; only PLAINTEXT is", p))
		}
		i := strings.LastIndexByte(hostPort, ':')
		if i < 0 {
			return nil, bad("must be NAME://HOST:PORT")
		}
		port, err := strconv.ParseUint(hostPort[i+1:], 10, 16)
		if err != nil {
			return nil, bad("the port must be a number from 0 to 65535")
		}
		out = append(out, Address{Name: name, Host: strings.Trim(hostPort[:i], "[]"), Port: int32(port)})
	}
	return out, nil
}

// protocol of a listener name, by listener.security.protocol.map; a name that is not in it is taken as the protocol.
func (b *Broker) protocol(listener string) string {
	for _, e := range b.List("listener.security.protocol.map") {
		if n, p, ok := strings.Cut(e, ":"); ok && n == listener {
			return p
		}
	}
	return listener
}
