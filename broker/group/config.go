package group

import "math"

// Config is what the core is told once. Zero values are the defaults named.
type Config struct {
	MinSessionMs   int32 // group.min.session.timeout.ms, default 6 s
	MaxSessionMs   int32 // group.max.session.timeout.ms, default 30 min
	MaxSize        int   // group.max.size, members of a group, default no limit
	InitialDelayMs int64 // group.initial.rebalance.delay.ms, default 3 s; negative: none
	RetentionMs    int64 // offsets.retention.minutes, default 7 days
	MetadataMax    int   // offset.metadata.max.bytes, default 4096; negative: 0

	// NewMemberJoinMs is how long a member that has no answer to its first join yet is kept. Default 5 min, as in Kafka.
	NewMemberJoinMs int64
	// PendingMs is the longest a member id that was given out and not used holds up a rebalance, where the session timeout is
	// longer. Kafka waits for the session timeout alone. Default 10 s.
	PendingMs int64
	// MaxPending bounds the member ids of a group that were given out and not used yet. Default 10000.
	MaxPending int
	// NewID gives the part of a member id that makes it unique. Required.
	NewID func() string
}

func (c *Config) fill() {
	def(&c.MinSessionMs, 6_000)
	def(&c.MaxSessionMs, 30*60_000)
	def(&c.MaxSize, math.MaxInt)
	def(&c.InitialDelayMs, 3_000)
	c.InitialDelayMs = max(c.InitialDelayMs, 0)
	def(&c.RetentionMs, 7*24*3_600_000)
	def(&c.MetadataMax, 4096)
	c.MetadataMax = max(c.MetadataMax, 0)
	def(&c.NewMemberJoinMs, 5*60_000)
	def(&c.PendingMs, 10_000)
	def(&c.MaxPending, 10_000)
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
