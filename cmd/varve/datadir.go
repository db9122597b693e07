package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dataDir is a broker's data directory, locked against other processes before anything else is touched.
type dataDir struct {
	path string
	id   string // random, kept in the directory: tells this broker's dead predecessor from another broker
	lock *os.File
}

const (
	processLock = "varve.lock"
	instanceID  = "instance.id"
)

// takeDataDir makes the directory if need be, locks it and reads its id, or makes one.
func takeDataDir(path string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, processLock), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("data directory %s is in use by another process; stop it, or give another directory", path)
	}
	d := &dataDir{path: path, lock: f}
	if d.id, err = readInstanceID(path); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

// release gives the lock up; nil and twice are fine.
func (d *dataDir) release() {
	if d != nil && d.lock != nil {
		d.lock.Close()
		d.lock = nil
	}
}

func readInstanceID(dir string) (string, error) {
	file := filepath.Join(dir, instanceID)
	text, err := os.ReadFile(file)
	if err == nil && strings.TrimSpace(string(text)) != "" {
		return strings.TrimSpace(string(text)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("instance id: %w", err)
	}
	id := rand.Text()
	if err := os.WriteFile(file+".tmp", []byte(id+"\n"), 0o644); err != nil {
		return "", fmt.Errorf("instance id: %w", err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		return "", fmt.Errorf("instance id: %w", err)
	}
	return id, nil
}
