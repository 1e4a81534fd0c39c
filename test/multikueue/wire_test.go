package multikueue

import (
	"io"
	"net"
	"sync"
)

// wire is what the manager's kubeconfig of a worker leads to: a proxy that can be cut.
type wire struct {
	listener net.Listener
	to       string

	mu sync.Mutex
	// cut: connections are refused; deaf: what is sent arrives, and no answer comes back.
	cut, deaf bool
	open      map[net.Conn]bool
}

// newWire leads to the address.
func newWire(to string) (*wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{listener: l, to: to, open: map[net.Conn]bool{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			go w.serve(c)
		}
	}()
	return w, nil
}

func (w *wire) address() string { return w.listener.Addr().String() }

func (w *wire) serve(from net.Conn) {
	defer end(from)
	if w.is(&w.cut) {
		return
	}
	to, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer end(to)
	w.keep(true, from, to)
	defer w.keep(false, from, to)
	go func() {
		defer end(from)
		buffer := make([]byte, 32<<10)
		for {
			n, err := to.Read(buffer)
			if n > 0 && !w.is(&w.deaf) {
				if _, err := from.Write(buffer[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	_, _ = io.Copy(to, from)
}

// end closes what may have been closed by the other end.
func end(c net.Conn) { _ = c.Close() }

func (w *wire) is(what *bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *what
}

func (w *wire) keep(open bool, conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		if open {
			w.open[c] = true
		} else {
			delete(w.open, c)
		}
	}
}

// set cuts or mends the wire; what is open ends.
func (w *wire) set(cut, deaf bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.deaf = cut, deaf
	if !deaf {
		for c := range w.open {
			end(c)
		}
	}
}
