package cluster

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

// Phase is where a component stands in its life.
//
//	Starting ──▶ Up ──▶ Restarting ──▶ Up …
//	               └──▶ Paused ──▶ Up …       all ──▶ Stopped
type Phase string

const (
	// Starting: not yet run.
	Starting Phase = "starting"
	// Up: its process runs.
	Up Phase = "up"
	// Restarting: its process died and the next is about to start.
	Restarting Phase = "restarting"
	// Paused: kept down on request.
	Paused Phase = "paused"
	// Stopped: its process is gone and no other will follow.
	Stopped Phase = "stopped"
)

// State is what other processes need to use a running sandbox. It is the registry's state file.
type State struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Ready   bool      `json:"ready"`
	Server  string    `json:"server"`

	// Kubeconfig is the administrator's. Copy is the one at the user's path, if any.
	Kubeconfig string `json:"kubeconfig"`
	Copy       string `json:"copy,omitempty"`

	// Dir holds the sandbox's files. Temporary are the paths that go when it ends.
	Dir       string   `json:"dir"`
	Temporary []string `json:"temporary,omitempty"`

	Components []ComponentState `json:"components"`

	// Clusters are the names of the sandboxes of a set, in the order of their start. A set has no components of its own; its
	// Server is that of the first.
	Clusters []string `json:"clusters,omitempty"`

	// Set is the name of the set that this sandbox belongs to, if any. Its supervisor is that of the whole set.
	Set string `json:"set,omitempty"`
}

// ComponentState is the state of one component.
type ComponentState struct {
	Name  string `json:"name"`
	Phase Phase  `json:"phase"`

	// PID is 0 while no process runs.
	PID int `json:"pid,omitempty"`

	// Restarts counts unexpected deaths, and those by Kill.
	Restarts int `json:"restarts"`

	// LastExit is how the last process ended, such as "signal: killed".
	LastExit string `json:"lastExit,omitempty"`

	Log   string `json:"log"`
	Probe Probe  `json:"probe"`
}

// ComponentStatus is a component's state together with what was measured just now.
type ComponentStatus struct {
	ComponentState

	// Ready is set if the component says that it serves.
	Ready bool `json:"ready"`

	// MemoryBytes is its resident memory, which includes the pages of the program that all components share.
	MemoryBytes int64 `json:"memoryBytes"`
}

// Measure reads of every component whether it serves and how much memory it uses.
func (s State) Measure(ctx context.Context) []ComponentStatus {
	statuses := make([]ComponentStatus, len(s.Components))
	var group sync.WaitGroup
	for i, component := range s.Components {
		group.Go(func() {
			statuses[i].ComponentState = component
			if component.PID == 0 {
				return
			}
			statuses[i].Ready = component.Probe.Check(ctx) == nil
			statuses[i].MemoryBytes = residentMemory(component.PID)
		})
	}
	group.Wait()
	return statuses
}

func (r Registry) writeState(state State) error {
	text, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(r.statePath(state.Name), append(text, '\n'))
}
