package demo

import (
	"fmt"

	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	onDemand = "gpu-on-demand"
	spot     = "gpu-spot"
	cpus     = "cpu"
)

// story is a manifest, what is expected to happen, and what must never happen.
type story struct {
	letter, title, manifest string
	// objects are a manifest of what only this story needs; empty is none.
	objects string
	// name of the request or job, and label of its pods with that value, of a Job by default.
	name, label string
	// group that the story's machines come from, and how many.
	group    string
	gang     int
	chapters []chapter
	// afterwards are the chapters that follow the deletion of the manifest.
	afterwards []chapter
	// watch says what is wrong with a scene, if anything.
	watch func(*scene) error
}

// chapter gives its text once it has come about, nothing before.
type chapter func(*scene) string

var stories = []story{
	{
		letter: "a", title: "A ProvisioningRequest grows a GPU group from 0 to 4 nodes", manifest: "request.yaml",
		name: "inference", group: onDemand, gang: 4,
		chapters: []chapter{
			when(func(s *scene) bool { return s.machines[onDemand] == 4 }, "4 machines are launching; the request is not Provisioned yet"),
			when(func(s *scene) bool { return s.requestIs(provreq.Provisioned) }, "all 4 nodes are Ready with their GPUs, and booked: Provisioned"),
		},
		afterwards: []chapter{
			when(func(s *scene) bool { return s.machines[onDemand] == 0 && s.nodes[onDemand] == 0 }, "the machines are idle: they are terminated"),
		},
		watch: func(s *scene) error {
			if s.requestIs(provreq.Provisioned) && s.ready[onDemand] < 4 {
				return fmt.Errorf("the request is Provisioned with %d of 4 nodes ready", s.ready[onDemand])
			}
			return nil
		},
	},
	{
		letter: "b", title: "A queued Job of 8 pods × 8 GPUs waits until its 8 machines are there", manifest: "job-steady.yaml",
		name: "train", group: onDemand, gang: 8,
		chapters: []chapter{
			when(func(s *scene) bool { return s.job != nil && *s.job.Spec.Suspend }, "the Job is held; it has no pod"),
			when(func(s *scene) bool { return s.flavor() != "" }, "quota is reserved; its machines are requested"),
			when(func(s *scene) bool { return s.workloadIs(kueue.WorkloadAdmitted) }, "8 nodes are Ready and booked: the Job is started"),
			when(func(s *scene) bool { return s.running+s.finished == 8 }, "all 8 pods run"),
			when((*scene).jobComplete, "the Job is complete"),
			when(func(s *scene) bool { return s.machines[onDemand] == 0 && s.nodes[onDemand] == 0 }, "the machines are terminated"),
		},
		watch: neverInPart(onDemand, 8),
	},
	{
		letter: "c", title: "A spot pool has 7 of the 8 machines: nothing is kept, the next capacity type is tried", manifest: "job-thrifty.yaml",
		name: "sweep", group: onDemand, gang: 8,
		chapters: []chapter{
			func(s *scene) string {
				if a, ok := stockout(s); ok {
					return fmt.Sprintf("the launch in the spot pool fails: %s", a.Message)
				}
				return ""
			},
			when(func(s *scene) bool { return s.machines[spot] == 0 && s.nodes[spot] == 0 }, "none of the 7 machines is kept"),
			when(func(s *scene) bool { return s.flavor() == "on-demand" }, "the Job requests on-demand machines instead"),
			when(func(s *scene) bool { return s.workloadIs(kueue.WorkloadAdmitted) }, "8 on-demand nodes are Ready and booked: the Job is started"),
			when((*scene).jobComplete, "the Job is complete"),
			when(func(s *scene) bool { return s.machines[onDemand] == 0 && s.nodes[onDemand] == 0 }, "the machines are terminated"),
		},
		// That none of the seven is left is one of the promises.
		watch: neverInPart(onDemand, 8),
	},
}

// ofJobSet is the story of a JobSet, whose operator has to be there.
var ofJobSet = story{
	letter: "e", title: "The launcher and the workers of a JobSet wait for machines of two groups", manifest: "jobset.yaml",
	objects: "objects-jobset.yaml", name: "mpi", label: "jobset.sigs.k8s.io/jobset-name", group: onDemand, gang: 2,
	chapters: []chapter{
		when(func(s *scene) bool { return s.workload != nil && s.pods == 0 }, "the JobSet is held; it has no pod"),
		when(func(s *scene) bool { return s.flavor() != "" }, "quota is reserved, of a flavor for each podSet; machines of both groups are requested"),
		when(func(s *scene) bool { return s.workloadIs(kueue.WorkloadAdmitted) }, "a CPU node and 2 GPU nodes are Ready and booked: the JobSet is started"),
		when(func(s *scene) bool { return s.running+s.finished == 3 }, "the launcher and both workers run"),
		when(func(s *scene) bool { return s.workloadIs(kueue.WorkloadFinished) }, "the JobSet is complete"),
		when(func(s *scene) bool { return s.machines[onDemand]+s.nodes[onDemand]+s.machines[cpus]+s.nodes[cpus] == 0 },
			"the machines of both groups are terminated"),
	},
	watch: func(s *scene) error {
		if s.pods > s.finished && s.ready[cpus] < 1 {
			return fmt.Errorf("%d pods exist without a CPU node", s.pods)
		}
		return neverInPart(onDemand, 2)(s)
	},
}

// when is a chapter of a fixed text.
func when(reached func(*scene) bool, text string) chapter {
	return func(s *scene) string {
		if reached(s) {
			return text
		}
		return ""
	}
}

// neverInPart says that no pod may exist before the whole gang's nodes are ready.
func neverInPart(group string, gang int) func(*scene) error {
	return func(s *scene) error {
		if s.pods > s.finished && s.ready[group] < gang {
			return fmt.Errorf("%d pods exist with %d of %d nodes ready", s.pods, s.ready[group], gang)
		}
		return nil
	}
}

// stockout is the refusal that the spot group remembers.
func stockout(s *scene) (v1alpha1.LaunchAttempt, bool) {
	for _, a := range s.attempts[spot] {
		if a.Class == v1alpha1.Stockout {
			return a, true
		}
	}
	return v1alpha1.LaunchAttempt{}, false
}
