package replica

import (
	"sort"

	"github.com/varvelog/varve/record"
)

// epochEnd is Kafka's endOffsetFor over a history that ends at leo: the largest epoch not above the one asked for, and where it ends.
// (-1, -1) for one above all, (epoch, start of the oldest) for one below all.
func epochEnd(history []record.Epoch, leo int64, epoch int32) (int32, int64) {
	n := len(history)
	if n == 0 || epoch < 0 || epoch > history[n-1].Epoch {
		return -1, -1
	}
	if epoch == history[n-1].Epoch {
		return epoch, leo
	}
	i := sort.Search(n, func(i int) bool { return history[i].Epoch > epoch })
	if i == 0 {
		return epoch, history[0].Start
	}
	return history[i-1].Epoch, history[i].Start
}

// truncateTo is where a follower with this history cuts its log, ending at leo, when the leader says that of the epoch of the
// follower's last record, or of the largest one below it, its own log has only [.., end) (KIP-101, 279). Where the follower does not
// know the leader's epoch either it cuts back to its own next lower one, and asks again with that: one round an epoch.
func truncateTo(history []record.Epoch, leo int64, epoch int32, end int64) int64 {
	own, ownEnd := epochEnd(history, leo, epoch)
	switch {
	case own < 0:
		return min(end, leo)
	case own != epoch:
		return min(ownEnd, leo)
	}
	return min(ownEnd, end, leo)
}

// fetchedEpoch is the epoch of the last record of a log that ends at leo, -1 where that is not known.
func fetchedEpoch(history []record.Epoch, leo int64) int32 {
	if leo == 0 {
		return -1
	}
	return epochAt(history, leo-1)
}
