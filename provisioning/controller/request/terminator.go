package request

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/journal"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// Terminator terminates machines that no request needs.
type Terminator struct {
	Model     *model.Model
	Providers map[v1alpha1.Provider]cloudprovider.Provider
	// Live reads from the API server, without a cache.
	Live client.Reader
	// Request is the request of the launch, if it is known, and Cause the reason of the termination. Both are logged.
	Request, Cause string
}

// Terminator returns the Terminator of the controller.
func (c *Controller) Terminator() *Terminator {
	return &Terminator{Model: c.Model, Providers: c.Providers, Live: c.Live}
}

// Terminate terminates machines by name, group after group, and updates the model. If the node of a machine has a pod that the model does
// not have yet, the machine stays and Terminate returns an error. The machine is decided again when the pod arrives.
func (t *Terminator) Terminate(ctx context.Context, machines []cloudprovider.Machine) error {
	machines, held := t.vacant(ctx, machines)
	byGroup := map[string][]cloudprovider.Machine{}
	var groups []string
	for _, machine := range machines {
		if byGroup[machine.Group] == nil {
			groups = append(groups, machine.Group)
		}
		byGroup[machine.Group] = append(byGroup[machine.Group], machine)
	}
	errs := []error{held}
	for _, group := range groups {
		names := make([]string, len(byGroup[group]))
		for i, machine := range byGroup[group] {
			names[i] = machine.Name
		}
		journal.Write(ctx, "Terminating machines", t.Request+"/"+group, journal.Request, t.Request, journal.Group, group,
			journal.Count, len(names), journal.Machines, names, journal.Price, t.price(group, len(names)), journal.Cause, t.Cause)
		p, err := t.providerOf(byGroup[group][0])
		if err == nil {
			err = p.Terminate(ctx, group, names)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("terminating machines of group %s: %w", group, err))
			continue
		}
		for _, machine := range byGroup[group] {
			t.Model.MachineTerminated(machine)
		}
	}
	return errors.Join(errs...)
}

// price returns the price of so many machines of a group in USD per hour; empty if it is unknown.
func (t *Terminator) price(group string, count int) string {
	if g := t.Model.Group(group); g != nil && g.Spec.PricePerHour != nil {
		return text.USD(nodegroups.Times(int64(count), nodegroups.MicroUSD(g.Spec.PricePerHour)))
	}
	return ""
}

// vacant returns the machines whose nodes run only the pods that the decision has seen. Caches lag behind the API server, by seconds under
// load, and the pods on a machine end with it.
func (t *Terminator) vacant(ctx context.Context, machines []cloudprovider.Machine) ([]cloudprovider.Machine, error) {
	errs := make([]error, len(machines))
	var g errgroup.Group
	g.SetLimit(nodeReads)
	for i := range machines {
		g.Go(func() error {
			if node, _ := t.Model.HostOf(machines[i]); node != "" {
				errs[i] = t.unseen(ctx, node)
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in the slice
	var out []cloudprovider.Machine
	for i := range machines {
		if errs[i] == nil {
			out = append(out, machines[i])
		}
	}
	return out, errors.Join(errs...)
}

// InUse returns the names of machines whose nodes are booked or run pods, including pods that the model does not have yet.
func (t *Terminator) InUse(ctx context.Context, machines []cloudprovider.Machine) (map[string]bool, error) {
	out := map[string]bool{}
	for _, m := range machines {
		node, used := t.Model.HostOf(m)
		if node != "" && !used {
			err := t.unseen(ctx, node)
			if used = errors.Is(err, errCame); err != nil && !used {
				return nil, err
			}
		}
		if used {
			out[m.Name] = true
		}
	}
	return out, nil
}

// unseen returns an error if the node has a pod that is not in the model.
func (t *Terminator) unseen(ctx context.Context, node string) error {
	pods := &corev1.PodList{}
	if err := t.Live.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return fmt.Errorf("listing the pods on node %s: %w", node, err)
	}
	known := t.Model.BoundFor(node, "", "")
	for i := range pods.Items {
		if p := &pods.Items[i]; !slices.Contains(known, p.UID) && state.ReadPod(p).Counts() {
			return fmt.Errorf("node %s: pod %s/%s %w", node, p.Namespace, p.Name, errCame)
		}
	}
	return nil
}

// providerNameOf returns the provider of a machine. It reads the machine's ID if the NodeGroup is gone.
func (t *Terminator) providerNameOf(machine cloudprovider.Machine) v1alpha1.Provider {
	if g := t.Model.Group(machine.Group); g != nil {
		return g.Spec.Provider
	}
	return nodegroups.ProviderOf(machine.ProviderID)
}

func (t *Terminator) providerOf(machine cloudprovider.Machine) (cloudprovider.Provider, error) {
	name := t.providerNameOf(machine)
	if p := t.Providers[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("machine %s (%s) of group %s: provider %q is not available in this process", machine.Name, machine.ProviderID,
		machine.Group, name)
}
