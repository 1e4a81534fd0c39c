// Package submit makes the objects of a job from a command line, or from a script with directives, as Slurm's sbatch does: a Job, JobSet
// or PyTorchJob in a queue, and what its pods need to find each other.
package submit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Kinds of jobs that can be made.
const (
	KindJob        = "job"
	KindJobSet     = "jobset"
	KindPyTorchJob = "pytorchjob"
)

// Kinds are all of them.
var Kinds = []string{KindJob, KindJobSet, KindPyTorchJob}

// Options of a job.
type Options struct {
	// Name, Namespace and Queue are where it is created.
	Name, Namespace, Queue string
	Image                  string
	Command                []string
	Kind                   string
	// GPUs of all pods together, GPUsPerNode those of a pod, and Nodes the number of pods. Zero is not given.
	GPUs, GPUsPerNode, Nodes int
	// Device is the resource that a GPU is.
	Device      string
	CPU, Memory string
	Priority    string
	// Topology is the level of a Topology: all pods must be in one domain of it.
	Topology string
	// Time is how long the job may run; zero is without a bound.
	Time time.Duration
	// Retries are how often failed pods are replaced.
	Retries      int
	Env          map[string]string
	NodeSelector map[string]string
}

// AddFlags adds the options as flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Image, "image", "", "container image")
	flags.StringVarP(&o.Queue, "queue", "q", "", "LocalQueue; if the namespace has only one, that is the default")
	flags.StringVar(&o.Kind, "kind", KindJob, "kind of job: "+strings.Join(Kinds, ", "))
	flags.IntVar(&o.GPUs, "gpus", 0, "number of GPUs of all pods together")
	flags.IntVar(&o.GPUsPerNode, "gpus-per-node", 0, fmt.Sprintf("number of GPUs of a pod (default: all of them, at most %d)", mostPerNode))
	flags.IntVar(&o.Nodes, "nodes", 0, "number of pods (default: as many as the GPUs need)")
	flags.StringVar(&o.Device, "device", "nvidia.com/gpu", "resource that a GPU is requested as")
	flags.StringVar(&o.CPU, "cpu", "", "CPUs of a pod, for example 32")
	flags.StringVar(&o.Memory, "memory", "", "memory of a pod, for example 256Gi")
	flags.StringVar(&o.Priority, "priority", "", "WorkloadPriorityClass")
	flags.StringVar(&o.Topology, "topology", "", "node label in one domain of which all pods have to be, for example a rack's")
	flags.DurationVar(&o.Time, "time", 0, "how long the job may run, for example 12h (default: without a bound)")
	flags.IntVar(&o.Retries, "retries", 0, "how many failed pods are replaced before the job fails")
	flags.StringToStringVar(&o.Env, "env", nil, "environment variables, as NAME=VALUE")
	flags.StringToStringVar(&o.NodeSelector, "node-selector", nil, "labels that nodes must have, as KEY=VALUE")
}

// mostPerNode is the number of GPUs of a pod, unless it is given: what most machines have.
const mostPerNode = 8

// complete checks the options, and fills in how many pods there are and how many GPUs each has.
func (o *Options) complete() error {
	if errs := validation.IsDNS1035Label(o.Name); len(errs) > 0 {
		return fmt.Errorf("name %q: %s", o.Name, errs[0])
	}
	for _, x := range []struct {
		flag, value string
		given       bool
	}{{"--image", "a container image", o.Image != ""}, {"--queue", "a LocalQueue", o.Queue != ""}} {
		if !x.given {
			return fmt.Errorf("%s is missing: give %s", x.flag, x.value)
		}
	}
	if len(o.Command) == 0 {
		return fmt.Errorf("the command is missing: give it after --, for example -- python train.py, or give a script")
	}
	if !slices.Contains(Kinds, o.Kind) {
		return fmt.Errorf("--kind=%s: use one of %s", o.Kind, strings.Join(Kinds, ", "))
	}
	for _, x := range []struct {
		flag  string
		value int
	}{{"gpus", o.GPUs}, {"gpus-per-node", o.GPUsPerNode}, {"nodes", o.Nodes}, {"retries", o.Retries}} {
		if x.value < 0 {
			return fmt.Errorf("--%s=%d: give a number that is not negative", x.flag, x.value)
		}
	}
	if o.Time < 0 || o.Time%time.Second != 0 {
		return fmt.Errorf("--time=%s: give whole seconds", o.Time)
	}
	for _, x := range []struct{ flag, value, example string }{{"cpu", o.CPU, "32"}, {"memory", o.Memory, "256Gi"}} {
		if x.value == "" {
			continue
		}
		if q, err := resource.ParseQuantity(x.value); err != nil || q.Sign() <= 0 {
			return fmt.Errorf("--%s=%s: give a positive quantity, for example %s", x.flag, x.value, x.example)
		}
	}
	return o.spread()
}

// spread decides how many pods there are, and how many GPUs each has.
func (o *Options) spread() error {
	switch {
	case o.GPUs == 0:
		o.Nodes = cmp.Or(o.Nodes, 1)
		return nil
	case o.GPUsPerNode == 0 && o.Nodes == 0:
		o.GPUsPerNode = min(o.GPUs, mostPerNode)
	case o.GPUsPerNode == 0:
		if o.GPUsPerNode = o.GPUs / o.Nodes; o.GPUsPerNode*o.Nodes != o.GPUs {
			return fmt.Errorf("--gpus=%d: with --nodes=%d it must be a multiple of %[2]d", o.GPUs, o.Nodes)
		}
	}
	if o.GPUs%o.GPUsPerNode != 0 {
		return fmt.Errorf("--gpus=%d: with %d GPUs per node it must be a multiple of %[2]d; --gpus-per-node changes that", o.GPUs,
			o.GPUsPerNode)
	}
	pods := o.GPUs / o.GPUsPerNode
	if o.Nodes != 0 && o.Nodes != pods {
		return fmt.Errorf("--nodes=%d: %d GPUs at --gpus-per-node=%d are %d pods", o.Nodes, o.GPUs, o.GPUsPerNode, pods)
	}
	o.Nodes = pods
	return nil
}
