package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

const loopback = "127.0.0.1"

// Ports are picked below the range from which systems take the local ports of outgoing connections (32768 up on Linux,
// 49152 up on macOS): so no connection takes the port of a component in the moments between its death and its return.
const (
	lowestPort  = 16384
	highestPort = 32767
)

// checkPort explains what to do when the port that the user chose is not available.
func checkPort(port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("port %d is taken by another program: choose another with --port, or --port 0 to have a free one picked", port)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("you may not listen on port %d: choose one above 1023 with --port, or --port 0 to have a free one picked", port)
	case err != nil:
		return fmt.Errorf("listening on port %d (choose another with --port): %w", port, err)
	}
	return listener.Close()
}

// portBlock is how many ports a sandbox has to choose from. It listens on the last one for its life, as a lock of the block: two
// sandboxes that start at once, perhaps with different registries, would otherwise find the same port free.
const portBlock = 64

type portLock struct{ net.Listener }

func (l portLock) release() error { return l.Close() }

// assignPorts gives every name of a port a number, from a block that no other sandbox has while the
// lock is held.
func assignPorts(names []string, apiServerPort int) (map[string]int, lock, error) {
	if apiServerPort != 0 {
		if err := checkPort(apiServerPort); err != nil {
			return nil, nil, err
		}
	}
	for _, block := range rand.Perm((highestPort - lowestPort + 1) / portBlock) {
		first := lowestPort + block*portBlock
		held, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(first+portBlock-1)))
		if err != nil {
			continue // another sandbox has the block
		}
		if ports := portsFrom(first, names, apiServerPort); ports != nil {
			return ports, portLock{held}, nil
		}
		if err := held.Close(); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("no %d free ports side by side on %s between %d and %d: stop some of the programs that listen there",
		len(names), loopback, lowestPort, highestPort)
}

// portsFrom gives every name a port of the block that is free now; nil where the block has too few.
func portsFrom(first int, names []string, apiServerPort int) map[string]int {
	ports := map[string]int{}
	next := first
	for _, name := range names {
		if name == APIServer && apiServerPort != 0 {
			ports[name] = apiServerPort
			continue
		}
		for next < first+portBlock-1 && (next == apiServerPort || checkPort(next) != nil) {
			next++
		}
		if next == first+portBlock-1 {
			return nil
		}
		ports[name] = next
		next++
	}
	return ports
}
