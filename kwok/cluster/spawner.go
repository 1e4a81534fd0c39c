package cluster

import (
	"os/exec"
	"runtime"
)

// spawner starts child processes from one operating system thread that lives as long as it does. Linux signals a child that its parent
// has died when the thread that created it ends, and Go ends and creates threads at any time.
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
