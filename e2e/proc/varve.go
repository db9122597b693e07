// Package proc starts the built binary as a process and talks to it from outside, for the end-to-end tests, the tour and the
// benchmarks.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Varve is one broker's process: `varve dev`, or `varve server` where Config is set. Its methods have one caller at a time.
type Varve struct {
	Bin    string // the binary
	Config string // --config of `varve server`; it names the directory and the addresses
	Dir    string // --data-dir
	Listen string // HOST:PORT of Kafka; filled by Start where empty
	Admin  string // HOST:PORT of /readyz; filled by Start where empty
	Args   []string
	Env    []string
	Log    io.Writer             // its output; nil: kept, see Output
	Spawn  func(*exec.Cmd) error // starts the process; nil: here

	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	kept tail
}

// Start starts the process and waits until it serves, or ctx ends.
func (v *Varve) Start(ctx context.Context) error {
	if err := v.Begin(); err != nil {
		return err
	}
	return v.Ready(ctx)
}

// Begin starts the process and does not wait for it.
func (v *Varve) Begin() error {
	for _, p := range []*string{&v.Listen, &v.Admin} {
		if *p == "" {
			a, err := FreeAddr()
			if err != nil {
				return err
			}
			*p = a
		}
	}
	args := []string{"dev", "--data-dir", v.Dir, "--listen", v.Listen, "--admin", v.Admin}
	if v.Config != "" {
		args = []string{"server", "--config", v.Config}
	}
	cmd := exec.Command(v.Bin, append(args, v.Args...)...)
	cmd.Env = append(os.Environ(), v.Env...)
	var out io.Writer = &v.kept
	if v.Log != nil {
		out = io.MultiWriter(&v.kept, v.Log)
	}
	cmd.Stdout, cmd.Stderr = out, out
	start := v.Spawn
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", v.Bin, err)
	}
	done := make(chan struct{})
	v.cmd, v.done = cmd, done
	go func() {
		cmd.Wait()
		close(done)
	}()
	return nil
}

// Ready waits until the process serves, or ctx ends, which kills it.
func (v *Varve) Ready(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if resp, err := http.Get("http://" + v.Admin + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-v.done:
			return fmt.Errorf("varve ended before it was ready: %s\n%s", v.cmd.ProcessState, v.Output())
		case <-ctx.Done():
			v.Kill()
			return fmt.Errorf("varve is not ready: %w\n%s", ctx.Err(), v.Output())
		case <-tick.C:
		}
	}
}

// Pid of the running process.
func (v *Varve) Pid() int { return v.cmd.Process.Pid }

// Output is the newest part of what the process wrote.
func (v *Varve) Output() string { return v.kept.String() }

// Kill ends the process as a crash does.
func (v *Varve) Kill() {
	v.cmd.Process.Kill()
	<-v.done
}

// Stop asks it to end and waits; an error if it does not end by itself with exit code 0.
func (v *Varve) Stop() error {
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-v.done:
	case <-time.After(time.Minute):
		v.Kill()
		return fmt.Errorf("varve did not end within a minute of SIGTERM\n%s", v.Output())
	}
	if code := v.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("varve ended with %s\n%s", v.cmd.ProcessState, v.Output())
	}
	return nil
}

// Started tells whether Start was called.
func (v *Varve) Started() bool { return v.cmd != nil }

// Ended tells whether the process has ended.
func (v *Varve) Ended() bool {
	select {
	case <-v.done:
		return true
	default:
		return false
	}
}

// Signal sends sig, e.g. SIGSTOP.
func (v *Varve) Signal(sig syscall.Signal) error { return v.cmd.Process.Signal(sig) }

// Result is what a verb of the binary did.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Run runs the binary with args and returns when it has ended; err only where it could not be run.
func Run(ctx context.Context, bin string, stdin io.Reader, env []string, args ...string) (Result, error) {
	cmd := exec.CommandContext(ctx, bin, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	cmd.Env = append(os.Environ(), env...)
	err := cmd.Run()
	r := Result{Stdout: out.String(), Stderr: errs.String()}
	if ee, ok := errors.AsType[*exec.ExitError](err); ok {
		r.Code = ee.ExitCode()
		return r, ctx.Err()
	}
	return r, err
}

// RunAndKill runs the binary with args and kills it after a while; ended tells that it had ended by itself.
func RunAndKill(after time.Duration, bin string, env []string, args ...string) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), after)
	defer cancel()
	_, err = Run(ctx, bin, nil, env, args...)
	if ctx.Err() != nil {
		return false, nil
	}
	return true, err
}

// tail keeps the newest 64 KiB of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const keep = 64 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*keep {
		t.b = append(t.b[:0], t.b[len(t.b)-keep:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
