package cluster

import (
	"os/exec"
	"runtime"
)

// spawner starts child processes from one operating system thread that lives as long as it does. Linux sends the
// signal that tells a child of its parent's death when the thread that made it ends, and Go ends and makes threads as
// it likes.
type spawner struct {
	commands chan *exec.Cmd
	results  chan error
}

func newSpawner() *spawner {
	s := &spawner{commands: make(chan *exec.Cmd), results: make(chan error)}
	go func() {
		runtime.LockOSThread()
		for cmd := range s.commands {
			s.results <- cmd.Start()
		}
	}()
	return s
}

// start is safe for several callers: results come in the order in which commands were taken, one at a time.
func (s *spawner) start(cmd *exec.Cmd) error {
	s.commands <- cmd
	return <-s.results
}

// close ends the thread, and with it on Linux every child that is left.
func (s *spawner) close() { close(s.commands) }
