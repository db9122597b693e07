package broker

import "fmt"

const maxTopicName = 249

// checkTopicName refuses what Kafka refuses: empty, ".", "..", too long, or other characters than ASCII letters, digits, '.', '_', '-'.
func checkTopicName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("topic name %q: %w", name, errInvalidTopic)
	case len(name) > maxTopicName:
		return fmt.Errorf("topic name of %d characters, at most %d: %w", len(name), maxTopicName, errInvalidTopic)
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Errorf("topic name %q has a character other than ASCII letters, digits, '.', '_' and '-': %w", name, errInvalidTopic)
		}
	}
	return nil
}

// internalTopic names what only the broker writes to (BUG-083).
func internalTopic(name string) bool {
	return name == "__consumer_offsets" || name == "__transaction_state" || name == "__share_group_state"
}
