package wire

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// entered is the environment's word that Enter has started this process.
const entered = "VARVE_WIRE_ENTERED"

// Enter runs this program again, as it was called and with env in addition, in a network namespace of its own, and returns its exit code.
// An error says that it could not be started there. To be called from the main goroutine, which has not left its thread: the thread's end
// is the end of the other.
func Enter(env ...string) (code int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	start := func(attr *syscall.SysProcAttr) (*exec.Cmd, error) {
		cmd := exec.Command(self, os.Args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Env = append(append(os.Environ(), env...), entered+"=1")
		attr.Pdeathsig = syscall.SIGKILL
		cmd.SysProcAttr = attr
		return cmd, cmd.Start()
	}
	cmd, err := start(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
	if errors.Is(err, os.ErrPermission) {
		cmd, err = start(&syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		})
	}
	if err != nil {
		return 0, fmt.Errorf("network namespace: %w", err)
	}
	err = cmd.Wait()
	if cmd.ProcessState == nil {
		return 0, err
	}
	if code = cmd.ProcessState.ExitCode(); code < 0 {
		return 1, nil // a signal
	}
	return code, nil
}

// Entered tells whether this process was started by Enter.
func Entered() bool { return os.Getenv(entered) != "" }

// Prepare makes the loopback interface of an entered namespace usable, and tries whether networks can be made in it. The loopback works
// even where the rest does not.
func Prepare() error {
	if err := up("lo"); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	n, err := New()
	if err != nil {
		return err
	}
	defer n.Close()
	_, err = n.Add(1)
	return err
}

// within runs f on a thread that is in the namespace, or in a new one where ns is nil, and leaves no thread there.
func within(ns *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer own.Close()
		if ns == nil {
			err = unix.Unshare(unix.CLONE_NEWNET)
		} else {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		// A thread that cannot go back ends with this goroutine, which does not unlock it.
		if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
			err = errors.Join(err, back)
		} else {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
