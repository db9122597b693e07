package broker

import (
	"sort"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handler answers one decoded request of a plain API. It runs on the connection's reader: it may wait (a join, a look-up in the
// archive) and then only this connection waits, as with Kafka. The request is the handler's own: nothing in it is reused.
// A nil response with a nil error sends nothing. An error closes the connection with one log line; what a client must be told
// goes into the response as a code (see errors.go).
type handler func(s *Server, c *conn, req kmsg.Request) (kmsg.Response, error)

// api is one protocol message that this server answers, in versions [min, max] (inclusive, as Kafka writes them).
type api struct {
	min, max int16
	handle   handler // nil: answered by the reader's own path (Produce, Fetch)
}

// apiTable lists what is served: one line an API, a file each. The versions are those of Apache Kafka 4.4, as far as kmsg knows them.
// A function, since ApiVersions reads the table that it is in.
func apiTable() map[kmsg.Key]api {
	return map[kmsg.Key]api{
		// data path
		kmsg.Produce:              {3, 13, nil},
		kmsg.Fetch:                {4, 18, nil},
		kmsg.ListOffsets:          {1, 11, handleListOffsets},
		kmsg.Metadata:             {0, 13, handleMetadata},
		kmsg.ApiVersions:          {0, 5, handleApiVersions},
		kmsg.DeleteRecords:        {0, 2, handleDeleteRecords},
		kmsg.OffsetForLeaderEpoch: {2, 4, handleOffsetForLeaderEpoch},

		// groups
		kmsg.FindCoordinator: {0, 6, handleFindCoordinator},
		kmsg.JoinGroup:       {0, 9, handleJoinGroup},
		kmsg.SyncGroup:       {0, 5, handleSyncGroup},
		kmsg.Heartbeat:       {0, 4, handleHeartbeat},
		kmsg.LeaveGroup:      {0, 5, handleLeaveGroup},
		kmsg.OffsetCommit:    {2, 10, handleOffsetCommit},
		kmsg.OffsetFetch:     {1, 10, handleOffsetFetch},
		kmsg.OffsetDelete:    {0, 0, handleOffsetDelete},
		kmsg.ListGroups:      {0, 5, handleListGroups},
		kmsg.DescribeGroups:  {0, 6, handleDescribeGroups},
		kmsg.DeleteGroups:    {0, 3, handleDeleteGroups},

		// administration
		kmsg.CreateTopics:            {2, 7, handleCreateTopics},
		kmsg.DeleteTopics:            {1, 6, handleDeleteTopics},
		kmsg.CreatePartitions:        {0, 3, handleCreatePartitions},
		kmsg.DescribeConfigs:         {1, 4, handleDescribeConfigs},
		kmsg.AlterConfigs:            {0, 2, handleAlterConfigs},
		kmsg.IncrementalAlterConfigs: {0, 1, handleIncrementalAlterConfigs},
		kmsg.DescribeCluster:         {0, 2, handleDescribeCluster},
		kmsg.DescribeLogDirs:         {1, 5, handleDescribeLogDirs},
		kmsg.DescribeTopicPartitions: {0, 0, handleDescribeTopicPartitions},

		// cluster
		kmsg.ElectLeaders:               {0, 2, handleElectLeaders},
		kmsg.AlterPartitionAssignments:  {0, 1, handleAlterPartitionReassignments},
		kmsg.ListPartitionReassignments: {0, 0, handleListPartitionReassignments},
		kmsg.DescribeQuorum:             {0, 2, handleDescribeQuorum},
		kmsg.UnregisterBroker:           {0, 0, handleUnregisterBroker},

		kmsg.InitProducerID: {0, 5, handleInitProducerID},
	}
}

// lookup finds the API of a request, whatever the version.
func (s *Server) lookup(key int16) (api, bool) {
	a, ok := s.apis[kmsg.Key(key)]
	return a, ok
}

// apiKeys lists the served APIs in order of their keys, as ApiVersions advertises them.
func (s *Server) apiKeys() []kmsg.ApiVersionsResponseApiKey {
	keys := make([]kmsg.ApiVersionsResponseApiKey, 0, len(s.apis))
	for k, a := range s.apis {
		e := kmsg.NewApiVersionsResponseApiKey()
		e.ApiKey, e.MinVersion, e.MaxVersion = k.Int16(), a.min, a.max
		if k == kmsg.Produce {
			// As Kafka 4 does: librdkafka takes a broker without Produce v0 for one that cannot do what it needs.
			e.MinVersion = 0
		}
		keys = append(keys, e)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i].ApiKey < keys[j].ApiKey })
	return keys
}

// frameLimit is how many bytes a request of this API may have after its length field.
func (s *Server) frameLimit(key int16) int32 {
	if kmsg.Key(key) == kmsg.Produce {
		return s.Options.MaxRequestBytes
	}
	return min(s.Options.MaxRequestBytes, plainRequestBytes)
}

// plainRequestBytes bounds requests that carry no records. Decoding allocates up to 24 times the frame.
const plainRequestBytes = 2 << 20
