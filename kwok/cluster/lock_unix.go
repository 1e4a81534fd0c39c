//go:build unix

package cluster

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// errLocked says that another process holds the lock.
var errLocked = errors.New("locked by another process")

// fileLock is held from lockFile to release, or to the death of the process. The kernel releases it then, so a lock can be distinguished
// from a leftover file.
type fileLock struct{ file *os.File }

// lockFile takes the lock on path, or returns errLocked if another process holds it for longer than a check takes.
func lockFile(path string) (*fileLock, error) {
	const (
		patience = 500 * time.Millisecond
		pause    = 10 * time.Millisecond
	)
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		lock, err := tryLockFile(path)
		if !errors.Is(err, errLocked) || time.Now().After(deadline) {
			return lock, err
		}
	}
}

func tryLockFile(path string) (*fileLock, error) {
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("opening a lock: %w", err)
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			file.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, errLocked
			}
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		// The holder before us may have removed the file between our opening and our locking it: then we hold a lock
		// that no other process can find.
		opened, openedErr := file.Stat()
		named, namedErr := os.Stat(path)
		if openedErr == nil && namedErr == nil && os.SameFile(opened, named) {
			return &fileLock{file}, nil
		}
		file.Close()
	}
}

// release removes the file while it is still locked, so that none is left behind, and lets go.
func (l *fileLock) release() error {
	return errors.Join(os.Remove(l.file.Name()), l.file.Close())
}

// isLocked reports whether another process holds the lock, without making the file.
func isLocked(path string) bool {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	return errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}
