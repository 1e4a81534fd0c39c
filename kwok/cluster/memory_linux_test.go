package cluster

import "testing"

func TestAvailableMemoryIsRead(t *testing.T) {
	const text = "MemTotal:       24683652 kB\nMemFree:        18507744 kB\nMemAvailable:   23558352 kB\nBuffers:          154260 kB\n"
	if got, known := parseAvailable([]byte(text)); !known || got != 23558352<<10 {
		t.Errorf("available %d (known %v), want %d", got, known, 23558352<<10)
	}
	for name, text := range map[string]string{"an older kernel": "MemTotal: 1 kB\n", "no number": "MemAvailable: much kB\n", "no file": ""} {
		if got, known := parseAvailable([]byte(text)); known {
			t.Errorf("%s: %d is taken for known", name, got)
		}
	}
	if got, known := availableMemory(); !known || got <= 0 {
		t.Errorf("this machine has %d (known %v)", got, known)
	}
}
