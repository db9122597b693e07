package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// ResidentBytes is the memory that the process holds now (VmRSS of Linux).
func (v *Varve) ResidentBytes() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.Pid()))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kb, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("process %d: no VmRSS", v.Pid())
}

// clockTick is the unit of CPU times in Linux's /proc.
const clockTick = 10 * time.Millisecond

// CPU is the processor time that the process has used, of all threads (Linux).
func (v *Varve) CPU() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.Pid()))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may hold anything; user and system time are the 12th and 13th word after it.
	words := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(words) < 13 {
		return 0, fmt.Errorf("process %d: %q", v.Pid(), stat)
	}
	var sum time.Duration
	for _, w := range words[11:13] {
		ticks, err := strconv.ParseInt(string(w), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", v.Pid(), err)
		}
		sum += time.Duration(ticks) * clockTick
	}
	return sum, nil
}
