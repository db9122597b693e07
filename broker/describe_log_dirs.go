package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// DescribeLogDirs v1-v5 (KIP-113, 827: total and usable bytes). There is one log directory. When the disk has failed one of its logs the
// directory has KAFKA_STORAGE_ERROR, and that log is not listed; deviation: the others are, since they are served.
func handleDescribeLogDirs(s *Server, _ *conn, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = s.config().Dir(), -1, -1
	var st unix.Statfs_t
	if err := unix.Statfs(dir.Dir, &st); err == nil {
		dir.TotalBytes = int64(st.Blocks) * st.Bsize
		dir.UsableBytes = int64(st.Bavail) * st.Bsize
	}
	wanted := map[string]map[int32]bool{} // nil: all
	for i := range req.Topics {
		t := &req.Topics[i]
		if wanted[t.Topic] == nil {
			wanted[t.Topic] = map[int32]bool{}
		}
		for _, p := range t.Partitions {
			wanted[t.Topic][p] = true
		}
	}
	at := map[string]int{}
	if len(s.Replicas.Offline()) > 0 {
		dir.ErrorCode = kerr.KafkaStorageError.Code
	}
	for _, p := range s.Replicas.All() {
		if p.Offline() != nil {
			continue
		}
		if req.Topics != nil && !wanted[p.Topic()][p.ID().Partition] {
			continue
		}
		i, ok := at[p.Topic()]
		if !ok {
			i = len(dir.Topics)
			at[p.Topic()] = i
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = p.Topic()
			dir.Topics = append(dir.Topics, t)
		}
		a := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		a.Partition, a.Size = p.ID().Partition, p.Log().SizeBytes()
		a.OffsetLag = max(0, p.HighWatermark()-p.LEO())
		dir.Topics[i].Partitions = append(dir.Topics[i].Partitions, a)
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp, nil
}
