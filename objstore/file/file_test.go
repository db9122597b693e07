package file_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/file"
)

func open(t *testing.T, dir string) *file.Bucket {
	t.Helper()
	b, err := file.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func put(t *testing.T, b objstore.Bucket, key, s string, c objstore.Cond) objstore.Info {
	t.Helper()
	info, err := b.Put(t.Context(), key, objstore.BytesBody([]byte(s)), c)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestNoKeyLeadsOutOfTheDirectory(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "objects")
	b := open(t, dir)
	secret := filepath.Join(outer, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Links that somebody put there: to a file and to a directory outside.
	if err := os.Symlink(secret, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outer, filepath.Join(dir, "up")); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"../secret", "a/../../secret", "link", "up/secret", "up/new"} {
		if rc, err := b.Get(t.Context(), key, 0, -1); err == nil {
			got, _ := io.ReadAll(rc)
			t.Errorf("get %s gave %q", key, got)
		}
		_, _ = b.Put(t.Context(), key, objstore.BytesBody([]byte("overwritten")), objstore.Cond{})
		_, _ = b.Put(t.Context(), key, objstore.BytesBody([]byte("created")), objstore.Cond{IfNoneMatch: true})
		_ = b.Delete(t.Context(), key)
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "secret" {
		t.Fatalf("secret is %q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(outer, "new")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("a file was made outside")
	}
}

func TestReservedNamesAreRefused(t *testing.T) {
	b := open(t, t.TempDir())
	for _, key := range []string{".varve-tmp/x", ".varve-tmp/lock", "a/.varve-x"} {
		if _, err := b.Put(t.Context(), key, objstore.BytesBody(nil), objstore.Cond{}); !errors.Is(err, objstore.ErrKey) {
			t.Errorf("put %s: %v", key, err)
		}
	}
	for info, err := range b.List(t.Context(), ".varve-tmp/", "") {
		t.Errorf("listed %+v, %v", info, err)
	}
}

func TestAKeyBelowAnObjectIsRefused(t *testing.T) {
	b := open(t, t.TempDir())
	put(t, b, "a/b", "x", objstore.Cond{})
	for _, c := range []objstore.Cond{{}, {IfNoneMatch: true}} {
		if _, err := b.Put(t.Context(), "a/b/c", objstore.BytesBody(nil), c); !errors.Is(err, objstore.ErrKey) {
			t.Errorf("put below an object: %v", err)
		}
	}
	if _, err := b.Put(t.Context(), "a", objstore.BytesBody(nil), objstore.Cond{}); !errors.Is(err, objstore.ErrKey) {
		t.Errorf("put on a prefix: %v", err)
	}
	if _, err := b.Head(t.Context(), "a/b/c"); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("head below an object: %v", err)
	}
}

func TestDeleteRemovesEmptyDirectories(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	put(t, b, "a/b/c/1", "", objstore.Cond{})
	put(t, b, "a/2", "", objstore.Cond{})
	if err := b.Delete(t.Context(), "a/b/c/1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a/b")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("a/b is still there")
	}
	if _, err := b.Head(t.Context(), "a/2"); err != nil {
		t.Fatal(err)
	}
}

func TestLeftoversOfDeadWritersAreSweptAndLiveOnesKept(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	dead := filepath.Join(dir, ".varve-tmp", "0123456789abcdef01234567")
	if err := os.WriteFile(dead, []byte("half an obj"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A body whose reading waits while another process opens the directory.
	gate := &gatedBody{data: []byte("slow"), reached: make(chan struct{}), open: make(chan struct{})}
	whole := objstore.BytesBody(gate.data)
	done := make(chan error, 1)
	go func() {
		_, err := b.Put(t.Context(), "slow", objstore.FileBody(gate, whole.Size, whole.CRC32C), objstore.Cond{IfNoneMatch: true})
		done <- err
	}()
	<-gate.reached
	open(t, dir)
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the dead writer's file is still there")
	}
	close(gate.open)
	if err := <-done; err != nil {
		t.Fatalf("the living writer: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, ".varve-tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if e.Name() != "lock" {
			t.Errorf("left is %s", e.Name())
		}
	}
}

type gatedBody struct {
	data          []byte
	reached, open chan struct{}
}

func (g *gatedBody) ReadAt(p []byte, off int64) (int, error) {
	if off == 0 {
		close(g.reached)
		<-g.open
	}
	return bytes.NewReader(g.data).ReadAt(p, off)
}

func TestETagsDifferThoughTheClockStandsStill(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	put(t, b, "k", "0", objstore.Cond{})
	future := time.Now().Add(time.Hour) // as if the clock had been set back since
	if err := os.Chtimes(filepath.Join(dir, "k"), future, future); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for i := range 50 {
		etag := put(t, b, "k", fmt.Sprint(i%10), objstore.Cond{}).ETag
		if seen[etag] {
			t.Fatalf("ETag %s twice", etag)
		}
		seen[etag] = true
	}
}

// TestMain makes this binary the other process of the race tests.
func TestMain(m *testing.M) {
	dir := os.Getenv("VARVE_FILE_TEST_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := writer(dir, os.Getenv("VARVE_FILE_TEST_ID")); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

const races = 40

// writer creates the keys of the race and counts up the shared counter; it says which creations it won.
func writer(dir, id string) error {
	b, err := file.New(dir)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	for i := range races {
		won, err := create(b, fmt.Sprintf("race/%d", i), id)
		if err != nil {
			return err
		}
		if won {
			fmt.Println("won", i)
		}
		if err := countUp(b); err != nil {
			return err
		}
	}
	return nil
}

func create(b objstore.Bucket, key, id string) (won bool, err error) {
	_, err = b.Put(context.Background(), key, objstore.BytesBody([]byte(id)), objstore.Cond{IfNoneMatch: true})
	if errors.Is(err, objstore.ErrExists) {
		return false, nil
	}
	return err == nil, err
}

// countUp adds one to the object "counter" by compare and swap.
func countUp(b objstore.Bucket) error {
	for {
		rc, err := b.Get(context.Background(), "counter", 0, -1)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(rc)
		rc.Close()
		if err != nil {
			return err
		}
		info, _ := objstore.InfoOf(rc)
		var n int
		if _, err := fmt.Sscan(string(data), &n); err != nil {
			return err
		}
		_, err = b.Put(context.Background(), "counter", objstore.BytesBody(fmt.Append(nil, n+1)), objstore.Cond{IfMatch: info.ETag})
		if !errors.Is(err, objstore.ErrPrecondition) {
			return err
		}
	}
}

func TestCreationAndReplacementAreRaceFreeBetweenProcesses(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	put(t, b, "counter", "0", objstore.Cond{})
	const writers = 3
	type proc struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Scanner
	}
	var procs []proc
	for i := range writers {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "VARVE_FILE_TEST_DIR="+dir, fmt.Sprintf("VARVE_FILE_TEST_ID=%d", i))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p := proc{cmd, in, bufio.NewScanner(out)}
		if !p.out.Scan() || p.out.Text() != "ready" {
			t.Fatalf("writer %d says %q", i, p.out.Text())
		}
		procs = append(procs, p)
	}
	for _, p := range procs {
		fmt.Fprintln(p.in, "go")
	}
	winner := make(map[string]string)
	for i, p := range procs {
		for p.out.Scan() {
			race, ok := strings.CutPrefix(p.out.Text(), "won ")
			if !ok || winner[race] != "" {
				t.Errorf("writer %d says %q, race won by %q", i, p.out.Text(), winner[race])
			}
			winner[race] = fmt.Sprint(i)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	if len(winner) != races {
		t.Errorf("%d of %d races have a winner", len(winner), races)
	}
	for race, id := range winner {
		if got, _, err := objstore.ReadAll(t.Context(), b, "race/"+race, 10); err != nil || string(got) != id {
			t.Errorf("race %s: object of %q, %v, won by %s", race, got, err, id)
		}
	}
	if got, _, err := objstore.ReadAll(t.Context(), b, "counter", 10); err != nil || string(got) != fmt.Sprint(writers*races) {
		t.Errorf("counter is %q, %v, want %d", got, err, writers*races)
	}
}
