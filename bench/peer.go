package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// peer is one of the two brokers under test: how to lay out a data directory and how to start on it.
type peer struct {
	name    string
	port    int                              // 0: any two free ports in a row
	prepare func(dir string, port int) error // once for a new directory
	command func(dir string, port int) *exec.Cmd
}

func peers(o options) []peer {
	ps := []peer{varvePeer(o, nil)}
	if o.kafkaToo {
		ps = append(ps, kafkaPeer(o))
	}
	return ps
}

// varvePeer runs `varve dev` without an archive, since Kafka has none beside it either, unless set says otherwise.
func varvePeer(o options, set []string) peer {
	return peer{
		name:    "varve",
		prepare: func(string, int) error { return nil },
		command: func(dir string, port int) *exec.Cmd {
			args := []string{"dev", "--data-dir", dir, "--listen", addr(port), "--admin", addr(port + 1),
				"--set", "group.initial.rebalance.delay.ms=0", "--set", "offsets.topic.replication.factor=1"}
			if set == nil {
				set = []string{"archive.url="}
			}
			for _, s := range set {
				args = append(args, "--set", s)
			}
			return exec.Command(o.varve, args...)
		},
	}
}

func kafkaPeer(o options) peer {
	bin := func(name string) string { return filepath.Join(o.kafka, "bin", name) }
	return peer{
		name: "kafka",
		prepare: func(dir string, port int) error {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			conf, err := exec.Command(bin("mkconf"), dir, "1", strconv.Itoa(port), strconv.Itoa(port+1), addr(port+1)).Output()
			if err != nil {
				return fmt.Errorf("mkconf: %w", err)
			}
			file := filepath.Join(dir, "server.properties")
			if err := os.WriteFile(file, conf, 0o644); err != nil {
				return err
			}
			out, err := exec.Command(bin("kafka-storage"), "format", "--standalone", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", file).CombinedOutput()
			if err != nil {
				return fmt.Errorf("kafka-storage format: %w\n%s", err, out)
			}
			return nil
		},
		command: func(dir string, _ int) *exec.Cmd {
			c := exec.Command(bin("kafka-server-start"), filepath.Join(dir, "server.properties"))
			c.Env = append(os.Environ(), "LOG_DIR="+filepath.Join(dir, "logs"))
			return c
		},
	}
}

func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// broker is a running peer.
type broker struct {
	peer
	dir     string
	port    int
	cmd     *exec.Cmd
	started time.Time
	log     string
}

var running = struct {
	sync.Mutex
	m map[*broker]bool
}{m: map[*broker]bool{}}

// launch starts p on dir, which it prepares if it is new; it does not wait until it serves.
func launch(p peer, dir string) (*broker, error) {
	b := &broker{peer: p, dir: dir, log: dir + ".log"}
	_, err := os.Stat(dir)
	if b.port = p.port; b.port == 0 {
		if b.port, err = portOf(dir, err == nil); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if err := p.prepare(dir, b.port); err != nil {
			return nil, err
		}
	}
	out, err := os.OpenFile(b.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	b.cmd = p.command(dir, b.port)
	b.cmd.Stdout, b.cmd.Stderr = out, out
	b.started = time.Now()
	if err := b.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	running.Lock()
	running.m[b] = true
	running.Unlock()
	return b, nil
}

// portOf remembers a directory's port beside it, so that a restart has the same one.
func portOf(dir string, known bool) (int, error) {
	file := dir + ".port"
	if text, err := os.ReadFile(file); err == nil && known {
		return strconv.Atoi(string(text))
	}
	port, err := freePorts(2)
	if err != nil {
		return 0, err
	}
	return port, os.WriteFile(file, []byte(strconv.Itoa(port)), 0o644)
}

// freePorts finds n free ports in a row and returns the first. They are below those that systems choose for outgoing connections: a broker that
// starts again finds its port free.
func freePorts(n int) (int, error) {
	for range 100 {
		port, free := 11000+rand.IntN(20000), true
		for i := range n {
			if l, err := net.Listen("tcp", addr(port+i)); err != nil {
				free = false
			} else {
				l.Close()
			}
		}
		if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row", n)
}

func (b *broker) addr() string { return addr(b.port) }
func (b *broker) pid() string  { return strconv.Itoa(b.cmd.Process.Pid) }

func (b *broker) who() string { return b.name }

func (b *broker) String() string { return fmt.Sprintf("%s (log: %s)", b.name, b.log) }

// stop ends the process by a signal and waits; SIGTERM is given a minute.
func (b *broker) stop(sig syscall.Signal) error {
	running.Lock()
	delete(running.m, b)
	running.Unlock()
	if err := b.cmd.Process.Signal(sig); err != nil {
		return err
	}
	t := time.AfterFunc(time.Minute, func() { b.cmd.Process.Kill() })
	defer t.Stop()
	err := b.cmd.Wait()
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		return nil // Kafka exits with 143 on SIGTERM
	}
	return err
}

func killAll() {
	running.Lock()
	defer running.Unlock()
	for b := range running.m {
		b.cmd.Process.Kill()
	}
}
