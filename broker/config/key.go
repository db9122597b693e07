package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Type of a key's value; the numbers are those of DescribeConfigs (KIP-569).
type Type int8

const (
	Bool     Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

func (t Type) String() string {
	return [...]string{"", "boolean", "string", "int", "short", "long", "double", "list", "class", "password"}[t]
}

// Key is one configuration key.
type Key struct {
	Name    string
	Type    Type
	Default string   // canonical text; see Null
	Null    bool     // the default is null: not set
	Min     float64  // inclusive; numbers only
	Max     float64  // inclusive
	Valid   []string // allowed values; for a List the allowed elements
	Doc     string
	Dynamic bool   // may be altered at run time, for one broker or all (KIP-226)
	Synonym string // for a topic key: the broker key that gives its default
	// Factor turns the synonym's value into the topic key's unit; 0 is 1.
	Inert bool // Kafka has it, varve accepts it for compatibility, and it changes nothing here
}

// InvalidError refuses a key or its value: by name, with what is allowed.
type InvalidError struct {
	Key, Value string
	Reason     string
}

func (e *InvalidError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s", e.Key, e.Reason)
	}
	return fmt.Sprintf("%s=%s: %s", e.Key, e.Value, e.Reason)
}

// Check parses text as the key's type and holds it to the key's range.
func (k *Key) Check(text string) error {
	v := strings.TrimSpace(text)
	bad := func(reason string) error { return &InvalidError{Key: k.Name, Value: text, Reason: reason} }
	switch k.Type {
	case Bool:
		if !strings.EqualFold(v, "true") && !strings.EqualFold(v, "false") {
			return bad("must be true or false")
		}
	case Int, Short, Long:
		n, err := strconv.ParseInt(v, 10, k.bits())
		if err != nil {
			return bad("must be " + k.Range())
		}
		if float64(n) < k.Min || float64(n) > k.Max {
			return bad("must be " + k.Range())
		}
	case Double:
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsNaN(f) || f < k.Min || f > k.Max {
			return bad("must be " + k.Range())
		}
	case List:
		for _, e := range SplitList(v) {
			if len(k.Valid) > 0 && !contains(k.Valid, e) {
				return bad("must be a list of " + strings.Join(k.Valid, ", "))
			}
		}
	case String, Class, Password:
		if len(k.Valid) > 0 && !contains(k.Valid, v) {
			return bad("must be one of " + strings.Join(k.Valid, ", "))
		}
	}
	return nil
}

// Range says in words what the key takes.
func (k *Key) Range() string {
	s := map[Type]string{Int: "an integer", Short: "an integer", Long: "an integer", Double: "a number"}[k.Type]
	lo, hi := k.Min > k.floor(), k.Max < k.ceiling()
	num := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	switch {
	case lo && hi:
		return s + " from " + num(k.Min) + " to " + num(k.Max)
	case lo:
		return s + " of at least " + num(k.Min)
	case hi:
		return s + " of at most " + num(k.Max)
	}
	return s
}

func (k *Key) bits() int {
	switch k.Type {
	case Short:
		return 16
	case Int:
		return 32
	}
	return 64
}

func (k *Key) floor() float64 {
	if k.Type == Double {
		return -math.MaxFloat64
	}
	return -math.Ldexp(1, k.bits()-1)
}

func (k *Key) ceiling() float64 {
	switch k.Type {
	case Double:
		return math.MaxFloat64
	case Long:
		return math.Ldexp(1, 63)
	}
	return math.Ldexp(1, k.bits()-1) - 1
}

func contains(list []string, v string) bool {
	for _, e := range list {
		if e == v {
			return true
		}
	}
	return false
}

// SplitList splits a List value as Kafka does: commas, blanks around elements dropped, empty text is no element.
func SplitList(v string) []string {
	var out []string
	for _, e := range strings.Split(v, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}

// limits fills the range of a number whose entry in a table has none: that of its type.
func limits(keys []Key) map[string]*Key {
	m := make(map[string]*Key, len(keys))
	for i := range keys {
		k := &keys[i]
		if k.Min == 0 && k.Max == 0 {
			k.Min = k.floor()
		}
		if k.Max == 0 || k.Max > k.ceiling() {
			k.Max = k.ceiling()
		}
		m[k.Name] = k
	}
	return m
}

// Suggest returns the known key nearest to name, "" if none is near.
func Suggest(name string, known map[string]*Key) string {
	best, dist := "", len(name)/3+2
	for k := range known {
		if d := distance(name, k); d < dist || d == dist && best != "" && k < best {
			best, dist = k, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		prev := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cur := row[j]
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j]+1, row[j-1]+1, prev+cost)
			prev = cur
		}
	}
	return row[len(b)]
}

func unknown(what, name string, known map[string]*Key) error {
	reason := "unknown " + what + " configuration key"
	if s := Suggest(name, known); s != "" {
		reason += "; did you mean " + s + "?"
	}
	return &InvalidError{Key: name, Reason: reason}
}
