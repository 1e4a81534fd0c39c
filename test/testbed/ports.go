package testbed

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"testing"
)

// Ports for the programs of tests are below those of sandboxes, and far below the range from which systems take the local ports of
// outgoing connections: a port that only was free before may be such a connection's by the time that the program listens.
const (
	lowestPort  = 8192
	highestPort = 16383
)

// FreePorts are ports of 127.0.0.1 that nothing listens on.
func FreePorts(n int) ([]int, error) {
	var out []int
	for tries := 0; len(out) < n; tries++ {
		if tries == 1000 {
			return nil, fmt.Errorf("there are no %d free ports of 127.0.0.1 between %d and %d", n, lowestPort, highestPort)
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if slices.Contains(out, port) {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue // it is taken
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		out = append(out, port)
	}
	return out, nil
}

// FreeAddress is 127.0.0.1 with a port that nothing listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	ports, err := FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
}
