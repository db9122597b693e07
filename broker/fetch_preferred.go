package broker

// preferredReplica says from which follower a consumer in this rack is to read, as Kafka's RackAwareReplicaSelector (KIP-392): an
// in-sync, living one of its rack that has the offset, of several the one that has most. The leader itself if it is in that rack.
func (s *Server) preferredReplica(f *fetchPart, rack string) (int32, bool) {
	if rack == "" || rack == s.Options.Rack || f.follower {
		return -1, false
	}
	brokers := s.Store.Image().Brokers
	best, bestLEO := int32(-1), int64(-1)
	for _, r := range f.p.InSync() {
		b := brokers[r.ID]
		if b == nil || b.Fenced || b.Rack != rack || r.LEO < f.offset || r.LEO <= bestLEO {
			continue
		}
		best, bestLEO = r.ID, r.LEO
	}
	return best, best >= 0
}
