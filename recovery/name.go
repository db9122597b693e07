package recovery

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Topic names are taken literally unless they have one of these: a dot is a dot.
const globMeta = "*?["

func isGlob(s string) bool { return strings.ContainsAny(s, globMeta) }

// matchName reports whether a name is the pattern, or matches it where it is a glob.
func matchName(pattern, name string) bool {
	if !isGlob(pattern) {
		return pattern == name
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// checkPatterns refuses globs that cannot match anything because they are malformed.
func checkPatterns(patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("%w: topic pattern %q is malformed", ErrRequest, p)
		}
	}
	return nil
}

// Rename says under which names topics come back.
type Rename struct {
	Map    map[string]string // new name by old
	Suffix string            // of all that Map does not have
}

func (r Rename) name(old string) string {
	if n, ok := r.Map[old]; ok {
		return n
	}
	return old + r.Suffix
}

// checkTopicName is Kafka's rule.
func checkTopicName(s string) error {
	ok := len(s) > 0 && len(s) <= 249 && s != "." && s != ".."
	for _, c := range []byte(s) {
		ok = ok && (c == '.' || c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
	}
	if !ok {
		return fmt.Errorf("%w: topic name %q: want 1 to 249 of [a-zA-Z0-9._-]", ErrRequest, s)
	}
	return nil
}

// checkNames refuses two topics that would get one name, and names that no topic may have.
func checkNames(topics []TopicPlan, r Rename) error {
	seen := map[string]string{}
	for _, t := range topics {
		if err := checkTopicName(t.Name); err != nil {
			return err
		}
		if other, twice := seen[t.Name]; twice {
			return fmt.Errorf("%w: topics %s and %s would both be named %s; use --map", ErrRequest, other, t.Source, t.Name)
		}
		seen[t.Name] = t.Source
	}
	for old := range r.Map {
		if !slices.ContainsFunc(topics, func(t TopicPlan) bool { return t.Source == old }) {
			return fmt.Errorf("%w: --map %s=%s: no topic %s is restored", ErrRequest, old, r.Map[old], old)
		}
	}
	return nil
}
