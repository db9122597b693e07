package group

// subscribedTopics reads the topics in a member's metadata of the "consumer" protocol type. All versions begin as version 0 does:
// version int16, topics, user data.
func subscribedTopics(b []byte) ([]string, error) {
	r := reader{b: b}
	if v := r.int16(); v < 0 {
		r.bad = true
	}
	var topics []string
	for n := r.count(2); n > 0 && !r.bad; n-- {
		topics = append(topics, r.string())
	}
	if err := r.err("subscription"); err != nil {
		return nil, err
	}
	return topics, nil
}
