package localseg

import "math"

// withDefaults replaces zero values by Kafka's defaults.
func (c Config) withDefaults() Config {
	set := func(p *int64, d int64) {
		if *p == 0 {
			*p = d
		}
	}
	set(&c.SegmentBytes, 1<<30)
	c.SegmentBytes = min(c.SegmentBytes, math.MaxInt32)
	set(&c.SegmentMs, 7*24*3600*1000)
	set(&c.IndexIntervalBytes, 4096)
	set(&c.SegmentIndexBytes, 10<<20)
	set(&c.RetentionMs, 7*24*3600*1000)
	set(&c.RetentionBytes, -1)
	set(&c.LocalRetentionMs, -2)
	set(&c.LocalRetentionBytes, -2)
	set(&c.FlushMessages, math.MaxInt64)
	set(&c.FlushMs, math.MaxInt64)
	set(&c.FileDeleteDelayMs, 60000)
	set(&c.ProducerExpiryMs, 24*3600*1000)
	if !c.Compact && !c.Delete {
		c.Delete = true
	}
	return c
}

// localRetention returns the limits of the local part of a tiered log: -2 means those of the whole log (KIP-405).
func (c Config) localRetention() (ms, bytes int64) {
	ms, bytes = c.LocalRetentionMs, c.LocalRetentionBytes
	if ms == -2 {
		ms = c.RetentionMs
	}
	if bytes == -2 {
		bytes = c.RetentionBytes
	}
	return ms, bytes
}

// moves tells whether what retention deletes here is gone for good, so that the log start moves.
func (c Config) moves() bool { return !c.Tiered || c.CopyDisabled }
