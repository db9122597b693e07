package broker

import "github.com/twmb/franz-go/pkg/kerr"

// eachTopicOnce calls f for the topics of a request, in order. A name that is in it more than once is refused, once, as Kafka does.
func eachTopicOnce[T any](topics []T, name func(*T) string, f func(t *T, err error)) {
	times := map[string]int{}
	for i := range topics {
		times[name(&topics[i])]++
	}
	for i := range topics {
		t := &topics[i]
		switch n := name(t); times[n] {
		case 0: // answered
		case 1:
			f(t, nil)
		default:
			times[n] = 0
			f(t, refuse(kerr.InvalidRequest, "topic %q is more than once in the request", n))
		}
	}
}
