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

// checkPort tells the user what to do when the port that they asked for is not to be had.
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

// pickPort returns a port that is free now and not in taken.
func pickPort(taken map[int]bool) (int, error) {
	const attempts = 200
	for range attempts {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if !taken[port] && checkPort(port) == nil {
			taken[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on %s between %d and %d: stop some of the programs that listen there", loopback, lowestPort,
		highestPort)
}

// assignPorts gives every name of a port a number.
func assignPorts(names []string, apiServerPort int) (map[string]int, error) {
	ports := map[string]int{}
	taken := map[int]bool{}
	if apiServerPort != 0 {
		if err := checkPort(apiServerPort); err != nil {
			return nil, err
		}
		ports[APIServer] = apiServerPort
		taken[apiServerPort] = true
	}
	for _, name := range names {
		if ports[name] != 0 {
			continue
		}
		number, err := pickPort(taken)
		if err != nil {
			return nil, err
		}
		ports[name] = number
	}
	return ports, nil
}
