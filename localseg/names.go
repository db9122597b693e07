package localseg

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// File names are Kafka's, but for .appendtime and partition.checkpoint, which are ours; see format.md.
const (
	extLog        = ".log"
	extIndex      = ".index"
	extTimeIndex  = ".timeindex"
	extTxnIndex   = ".txnindex"
	extSnapshot   = ".snapshot"
	extAppendTime = ".appendtime"
	extDeleted    = ".deleted"
	extTmp        = ".tmp"

	fileEpochs     = "leader-epoch-checkpoint"
	fileMetadata   = "partition.metadata"
	fileCheckpoint = "partition.checkpoint"
)

// segmentExts are the files that live and die with a segment; the log last, so that a half removed segment still has it.
var segmentExts = [...]string{extIndex, extTimeIndex, extTxnIndex, extAppendTime, extLog}

func fileName(dir string, base int64, ext string) string {
	return path.Join(dir, fmt.Sprintf("%020d%s", base, ext))
}

// parseName splits a name of a segment's file; ok is false for every other file.
func parseName(name string) (base int64, ext string, ok bool) {
	digits, rest, found := strings.Cut(name, ".")
	if !found || len(digits) != 20 {
		return 0, "", false
	}
	base, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || base < 0 {
		return 0, "", false
	}
	return base, "." + rest, true
}
