package etcdkv

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/varvelog/varve/meta"
)

func TestRestartKeepsWhatWasWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, ServerOptions{Dir: dir})
	for i := range 100 {
		if ok, _, err := s.KV().Txn(t.Context(), nil, []meta.Op{{Key: "/a/" + strconv.Itoa(i), Value: []byte("v")}}); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, ServerOptions{Dir: dir})
	pairs, _, err := s.KV().Range(t.Context(), "/a/")
	if err != nil || len(pairs) != 100 {
		t.Fatalf("%d pairs, %v, want 100", len(pairs), err)
	}
}

func TestSingleMemberListensNowhere(t *testing.T) {
	s := start(t, ServerOptions{Dir: t.TempDir()})
	if len(s.e.Clients) != 0 || len(s.e.Peers) != 0 {
		t.Fatalf("%d client and %d peer listeners, want none", len(s.e.Clients), len(s.e.Peers))
	}
}

func TestUnixSocketServesClients(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "varve") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	sock := "unix:" + filepath.Join(dir, "s")
	s := start(t, ServerOptions{Dir: filepath.Join(dir, "d"), Listen: []string{sock}})
	if _, _, err := s.KV().Txn(t.Context(), nil, []meta.Op{{Key: "/a"}}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := dial(t, sock).Get(t.Context(), "/a"); err != nil || !ok {
		t.Fatalf("get over the socket = %v, %v", ok, err)
	}
}

func refuses(t *testing.T, dir string, want error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), never) // etcd itself would wait for ever
	defer cancel()
	s, err := Start(ctx, ServerOptions{Dir: dir, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err == nil {
		s.Close()
		t.Fatalf("started, want %v", want)
	}
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
	if !strings.Contains(err.Error(), dir) {
		t.Fatalf("%q does not name the directory", err)
	}
}

func TestDirectoryInUseIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, ServerOptions{Dir: dir})
	refuses(t, dir, ErrDirInUse)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// Another etcd, which does not know our lock, holds only its database's.
	db, err := bbolt.Open(filepath.Join(dir, "member", "snap", "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	refuses(t, dir, ErrDirInUse)
	db.Close()
	start(t, ServerOptions{Dir: dir})
}

func TestDamagedDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	master := t.TempDir()
	s := start(t, ServerOptions{Dir: master})
	for i := range 200 {
		if _, _, err := s.KV().Txn(t.Context(), nil, []meta.Op{{Key: "/a/" + strconv.Itoa(i), Value: make([]byte, 1000)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wal := func(dir string) string {
		m, _ := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
		return m[0]
	}
	db := func(dir string) string { return filepath.Join(dir, "member", "snap", "db") }
	for name, damage := range map[string]func(dir string) error{
		"database of garbage":   func(d string) error { return os.WriteFile(db(d), []byte(strings.Repeat("garbage ", 8192)), 0o600) },
		"database cut off":      func(d string) error { return os.Truncate(db(d), 8192) },
		"database missing":      func(d string) error { return os.Remove(db(d)) },
		"database empty":        func(d string) error { return os.Truncate(db(d), 0) },
		"database pages zeroed": func(d string) error { return overwrite(db(d), 4*4096, make([]byte, 64<<10)) },
		"log of garbage":        func(d string) error { return overwrite(wal(d), 300, []byte(strings.Repeat("garbage ", 1000))) },
		"log empty":             func(d string) error { return os.Truncate(wal(d), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(filepath.Join(dir, "member"), os.DirFS(filepath.Join(master, "member"))); err != nil {
				t.Fatal(err)
			}
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			refuses(t, dir, ErrCorrupt)
		})
	}
}

func overwrite(path string, at int64, b []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(b, at)
	return err
}

// cluster starts three members at once.
func cluster(t *testing.T, ctx context.Context) (members []Member, dirs []string, servers []*Server) {
	t.Helper()
	var spec []string
	for id := range 3 {
		spec = append(spec, strconv.Itoa(id+1)+"@127.0.0.1:"+strconv.Itoa(freePort(t))+":"+strconv.Itoa(freePort(t)))
	}
	members, err := ParseMembers(strings.Join(spec, ","))
	if err != nil {
		t.Fatal(err)
	}
	servers = make([]*Server, 3)
	errs := make(chan error, 3)
	dirs = []string{t.TempDir(), t.TempDir(), t.TempDir()}
	for i := range servers {
		go func() {
			var err error
			servers[i], err = Start(ctx, ServerOptions{Dir: dirs[i], Members: members, ID: members[i].ID, Logger: quiet(t)})
			errs <- err
		}()
	}
	for range servers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range servers {
		t.Cleanup(func() { s.Close() })
	}
	return members, dirs, servers
}

func TestMemberThatLostItsDiskJoinsAnew(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), never)
	defer cancel()
	members, dirs, servers := cluster(t, ctx)
	if ok, _, err := servers[0].KV().Txn(ctx, nil, []meta.Op{{Key: "/a", Value: []byte("1")}}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := servers[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dirs[1]); err != nil {
		t.Fatal(err)
	}
	again, err := Start(ctx, ServerOptions{Dir: dirs[1], Members: members, ID: members[1].ID, Logger: quiet(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if p, _, err := again.KV().Get(ctx, "/a"); err != nil || string(p.Value) != "1" {
		t.Fatalf("%q, %v", p.Value, err)
	}
	// It counts again: with it, one of the others may go.
	if err := servers[0].Close(); err != nil {
		t.Fatal(err)
	}
	for {
		ok, _, err := again.KV().Txn(ctx, nil, []meta.Op{{Key: "/b", Value: []byte("2")}})
		if err == nil && ok {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("no write with the new member and one other: %v", err)
		}
	}
}

// An older copy of a disk lacks what this member has told the others: raft panics, and what is left of it cannot even be stopped.
func TestMemberWithAnOlderDiskJoinsAnew(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), never)
	defer cancel()
	members, dirs, servers := cluster(t, ctx)
	o := ServerOptions{Dir: dirs[1], Members: members, ID: members[1].ID, Logger: quiet(t)}
	if err := servers[1].Close(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(dirs[1])); err != nil {
		t.Fatal(err)
	}
	again, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if ok, _, err := again.KV().Txn(ctx, nil, []meta.Op{{Key: "/a", Value: []byte(strconv.Itoa(i))}}); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dirs[1]); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, dirs[1]); err != nil {
		t.Fatal(err)
	}
	if again, err = Start(ctx, o); err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if p, _, err := again.KV().Get(ctx, "/a"); err != nil || string(p.Value) != "49" {
		t.Fatalf("%q, %v", p.Value, err)
	}
	if _, err := os.Stat(o.markFile()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mark stays: %v", err)
	}
}

func TestClusterOfThreeSurvivesOneMember(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), never)
	defer cancel()
	members, _, servers := cluster(t, ctx)
	if ok, _, err := servers[0].KV().Txn(ctx, nil, []meta.Op{{Key: "/a", Value: []byte("1")}}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if p, _, err := servers[2].KV().Get(ctx, "/a"); err != nil || string(p.Value) != "1" {
		t.Fatalf("read at another member: %q, %v", p.Value, err)
	}
	if err := servers[1].Close(); err != nil {
		t.Fatal(err)
	}
	kv, err := Dial(Options{Endpoints: []string{members[1].Endpoint(), members[0].Endpoint(), members[2].Endpoint()}, Logger: quiet(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer kv.Close()
	for {
		ok, _, err := kv.Txn(ctx, nil, []meta.Op{{Key: "/b", Value: []byte("2")}})
		if err == nil && ok {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("no write with two of three members: %v", err)
		}
	}
}

// Etcd's leader would hand over to a member that stops too, and wait 7 s for it. A machine that is busy may take as long once, but not each
// time.
func TestMembersThatCloseAtOnceDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), never)
	defer cancel()
	for {
		_, _, servers := cluster(t, ctx)
		began := time.Now()
		var all sync.WaitGroup
		for _, s := range servers {
			all.Go(func() { s.Close() })
		}
		all.Wait()
		took := time.Since(began)
		if took < 5*time.Second {
			return
		}
		t.Logf("three members that are closed at once took %s", took)
		if ctx.Err() != nil {
			t.Fatal("each time")
		}
	}
}

func TestLonelyMemberOfAClusterStopsWithItsContext(t *testing.T) {
	t.Parallel()
	m := []Member{{1, "127.0.0.1", freePort(t), freePort(t)}, {2, "127.0.0.1", freePort(t), freePort(t)}, {3, "127.0.0.1", freePort(t), freePort(t)}}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := Start(ctx, ServerOptions{Dir: t.TempDir(), Members: m, ID: 1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, meta.ErrUnavailable) {
		t.Fatalf("%v, want the context's end", err)
	}
}

func TestMembersAreParsedStrictly(t *testing.T) {
	got, err := ParseMembers("1@a.example:2380:2379, 2@[::1]:1:2")
	if err != nil || len(got) != 2 || got[0] != (Member{1, "a.example", 2380, 2379}) || got[1] != (Member{2, "::1", 1, 2}) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got[1].Endpoint() != "[::1]:2" {
		t.Fatalf("endpoint %s", got[1].Endpoint())
	}
	for _, s := range []string{"", "1", "1@", "1@h", "1@h:1", "1@h:1:", "1@:1:2", "x@h:1:2", "-1@h:1:2", "1@h:0:2", "1@h:1:70000",
		"1@h:1:1", "1@h:1:2,1@g:1:2", "1@h:1:2,2@h:1:3", "1@h/x:1:2", "1@h:1:2,", "1@a=b:1:2"} {
		if m, err := ParseMembers(s); !errors.Is(err, meta.ErrInvalid) {
			t.Errorf("%q = %v, %v, want ErrInvalid", s, m, err)
		}
	}
}

func TestMemberMustBeInTheList(t *testing.T) {
	_, err := Start(t.Context(), ServerOptions{Dir: t.TempDir(), Members: []Member{{1, "localhost", 1, 2}}, ID: 2})
	if !errors.Is(err, meta.ErrInvalid) {
		t.Fatalf("%v, want ErrInvalid", err)
	}
}
