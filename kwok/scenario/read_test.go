package scenario

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/deploy/document"
)

// sound is a scenario in which the tests change a line.
const sound = `apiVersion: scenario.muster.dev/v1alpha1
kind: Scenario
description: a Job on a node
nodes:
- name: node
  count: 1
  capacity: {cpu: 4, memory: 8Gi}
groups:
- metadata: {name: pool}
  spec:
    provider: kwok
    maxNodes: 2
    template:
      capacity: {cpu: 4, memory: 8Gi}
    kwok: {bootDelay: 30s}
arrivals:
- name: job
  count: 3
  when: {every: 10s}
  shapes:
  - pods: 2
    requests: {cpu: 1}
    runFor: {atLeast: 1m}
ends: {atMost: 1h}
`

// queues are a LocalQueue of the namespace default, and the ClusterQueue behind it.
const queues = `objects:
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: batch}}
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: batch, namespace: default}, spec: {clusterQueue: batch}}
`

func TestASoundFileIsRead(t *testing.T) {
	s, err := Read([]byte(sound))
	if err != nil {
		t.Fatal(err)
	}
	if s.Nodes[0].Name != "node" || s.Groups[0].Name != "pool" || s.Arrivals[0].Shapes[0].Pods != 2 {
		t.Errorf("read %+v", s)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		// old is a text in sound, which new replaces.
		old, new string
		want     document.Fault
	}{
		"no YAML": {
			"  count: 3", "  count: 3: 4",
			document.Fault{Line: 18, Text: "mapping values are not allowed in this context"}},
		"two documents": {
			"ends: {atMost: 1h}", "ends: {atMost: 1h}\n---\nkind: Other",
			document.Fault{Line: 25, Text: "more than one document"}},
		"another API version": {
			"v1alpha1", "v1",
			document.Fault{Line: 1, Path: "apiVersion", Text: `it is "scenario.muster.dev/v1", but must be scenario.muster.dev/v1alpha1`}},
		"a field that there is not": {
			"  count: 3", "  counts: 3",
			document.Fault{Line: 18, Path: "arrivals[0].counts",
				Text: "unknown field; known fields are count, name, namespace, queue, shapes, when"}},
		"a field of a group that there is not": {
			"bootDelay", "bootTime",
			document.Fault{Line: 15, Path: "groups[0].spec.kwok.bootTime",
				Text: "unknown field; known fields are bootDelay, bootJitter, deviceDelay, devices, domains, faults, holds, seed"}},
		"a field that comes twice": {
			"  count: 3", "  count: 3\n  count: 4",
			document.Fault{Line: 19, Path: "arrivals[0].count", Text: "duplicate field"}},
		"a number that is none": {
			"  count: 3", "  count: many",
			document.Fault{Line: 18, Path: "arrivals[0].count", Text: `"many" is not a whole number of 32 bits`}},
		"a number in quotes": {
			"  count: 3", `  count: "3"`,
			document.Fault{Line: 18, Path: "arrivals[0].count", Text: `"3" is not a whole number of 32 bits`}},
		"a name that is a number": {
			"- name: job", "- name: 7",
			document.Fault{Line: 17, Path: "arrivals[0].name", Text: `"7" is not a string; quote it`}},
		"a boolean that is none": {
			"    requests: {cpu: 1}", "    requests: {cpu: 1}\n    together: perhaps",
			document.Fault{Line: 23, Path: "arrivals[0].shapes[0].together", Text: `"perhaps" is not a boolean; write true or false`}},
		"a duration without a unit": {
			"every: 10s", "every: 10",
			document.Fault{Line: 19, Path: "arrivals[0].when.every", Text: `"10" is not a duration; write one such as 90s, 5m or 1h30m`}},
		"an amount that is none": {
			"capacity: {cpu: 4, memory: 8Gi}\ngroups", "capacity: {cpu: 4, memory: 8GB!}\ngroups",
			document.Fault{Line: 7, Path: "nodes[0].capacity[memory]", Text: `"8GB!" is not a quantity; write one such as 500m, 4 or 16Gi`}},
		"a list that is none": {
			"nodes:\n- name: node\n  count: 1\n  capacity: {cpu: 4, memory: 8Gi}", "nodes: 3",
			document.Fault{Line: 4, Path: "nodes", Text: `"3" is not a list; write it as one, such as [a, b]`}},
		"fields that are none": {
			"ends: {atMost: 1h}", "ends: 1h",
			document.Fault{Line: 24, Path: "ends", Text: `"1h" is not a mapping; write fields with their values under it`}},
		"no description": {
			"description: a Job on a node", "seed: 3",
			document.Fault{Line: 1, Path: "description", Text: "it is missing; say in a sentence what this shows"}},
		"no node": {
			"  count: 1", "  count: 0",
			document.Fault{Line: 6, Path: "nodes[0].count", Text: "it is 0; give a number from 1 to 10000"}},
		"a node without memory": {
			"  capacity: {cpu: 4, memory: 8Gi}\ngroups", "  capacity: {cpu: 4}\ngroups",
			document.Fault{Line: 7, Path: "nodes[0].capacity", Text: "memory is missing; give an amount"}},
		"an amount of nothing": {
			"requests: {cpu: 1}", "requests: {cpu: 0}",
			document.Fault{Line: 22, Path: "arrivals[0].shapes[0].requests[cpu]", Text: "it is 0; give an amount greater than 0"}},
		"pods that ask for nothing": {
			"    requests: {cpu: 1}\n", "",
			document.Fault{Line: 21, Path: "arrivals[0].shapes[0].requests",
				Text: "a pod that asks for nothing needs no machine; give amounts, such as {cpu: 2}"}},
		"a cloud that costs": {
			"provider: kwok", "provider: aws",
			document.Fault{Line: 11, Path: "groups[0].spec.provider", Text: `it is "aws"; scenarios buy simulated machines alone: write kwok`}},
		"a group without a pool": {
			"    kwok: {bootDelay: 30s}\n", "",
			document.Fault{Line: 11, Path: "groups[0].spec.kwok", Text: "it is missing; write {} for a pool without faults"}},
		"a name of two things": {
			"- name: job", "- name: node",
			document.Fault{Line: 17, Path: "arrivals[0].name", Text: `"node" is the name of something else in this file, too; choose another`}},
		"a name that is none": {
			"- name: job", "- name: Job_1",
			document.Fault{Line: 17, Path: "arrivals[0].name",
				Text: `"Job_1" is no name; use up to 40 lower-case letters, digits and inner dashes`}},
		"teams that there are not": {
			"  count: 3", "  count: 3\n  namespace: $(team)",
			document.Fault{Line: 19, Path: "arrivals[0].namespace", Text: "it is $(team), but there are no teams; add them, or name a namespace"}},
		"both a pace and a rate": {
			"{every: 10s}", "{every: 10s, perHour: 5}",
			document.Fault{Line: 19, Path: "arrivals[0].when.perHour",
				Text: "Jobs come either every 10s or at random; keep one of every and perHour"}},
		"a busy hour of no rate": {
			"{every: 10s}", "{every: 10s, busiestAt: 14h}",
			document.Fault{Line: 19, Path: "arrivals[0].when.busiestAt", Text: "it shapes perHour, which is missing; add it"}},
		"a run of no time": {
			"{atLeast: 1m}", "{atMost: 1m}",
			document.Fault{Line: 23, Path: "arrivals[0].shapes[0].runFor", Text: "a Job runs for some time; give atLeast, jitter or mean"}},
		"a run that is longer than it may be": {
			"{atLeast: 1m}", "{atLeast: 1m, atMost: 30s}",
			document.Fault{Line: 23, Path: "arrivals[0].shapes[0].runFor.atMost", Text: "30s is less than atLeast, which is 1m0s; give more"}},
		"a negative time": {
			"every: 10s", "every: -10s",
			document.Fault{Line: 19, Path: "arrivals[0].when.every", Text: "-10s is negative; give a duration such as 90s"}},
		"a fault of who does not run": {
			"ends: {atMost: 1h}", "faults:\n  faults:\n  - {type: Disconnect, target: muster-standby, for: 1s}\nends: {atMost: 1h}",
			document.Fault{Line: 26, Path: "faults.faults[0].target", Text: `Unsupported value: "muster-standby": supported values: "muster"`}},
		"a fault that nothing is hit by": {
			"ends: {atMost: 1h}", "faults:\n  faults:\n  - {type: Kill, target: nobody}\nends: {atMost: 1h}",
			document.Fault{Line: 26, Path: "faults.faults[0].target",
				Text: `Unsupported value: "nobody": supported values: "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", ` +
					`"kwok", "muster"`}},
		"a Job that comes when all is over": {
			"{every: 10s}", "{from: 1h}",
			document.Fault{Line: 19, Path: "arrivals[0].when.from",
				Text: "it is 1h0m0s, but the run ends after 1h0m0s (ends.atMost); let the Jobs come sooner, or the run end later"}},
		"a pace at which not all come": {
			"{every: 10s}", "{every: 30m}",
			document.Fault{Line: 19, Path: "arrivals[0].when.every",
				Text: "with 30m0s between two, not all 3 Jobs come until the run ends after 1h0m0s (ends.atMost); give less, or fewer Jobs, or let " +
					"the run end later"}},
		"a pace whose sum is negative": {
			"  count: 3\n  when: {every: 10s}", "  count: 100000\n  when: {every: 8760h}",
			document.Fault{Line: 19, Path: "arrivals[0].when.every",
				Text: "with 8760h0m0s between two, not all 100000 Jobs come until the run ends after 1h0m0s (ends.atMost); give less, or fewer " +
					"Jobs, or let the run end later"}},
		"a rate at which not all come": {
			"{every: 10s}", "{perHour: 1}",
			document.Fault{Line: 19, Path: "arrivals[0].when.perHour",
				Text: "at 1 an hour the last of 3 Jobs comes after 1h31m48s, but the run ends after 1h0m0s (ends.atMost); give more, or fewer Jobs, " +
					"or let the run end later"}},
		"a time that is no time of a run": {
			"{atLeast: 1m}", "{mean: 10000h}",
			document.Fault{Line: 23, Path: "arrivals[0].shapes[0].runFor.mean", Text: "10000h0m0s is longer than a year; give at most 8760h0m0s"}},
		"a negative most": {
			"{atLeast: 1m}", "{mean: 1m, atMost: -1m}",
			document.Fault{Line: 23, Path: "arrivals[0].shapes[0].runFor.atMost", Text: "-1m0s is negative; give a duration such as 90s"}},
		"a deadline that no Job can keep": {
			"{atLeast: 1m}", "{atLeast: 1m}\n    deadline: 59s",
			document.Fault{Line: 24, Path: "arrivals[0].shapes[0].deadline",
				Text: "59s is less than runFor.atLeast, which is 1m0s, so no such Job could succeed; give more"}},
		"less time for a Job than it takes": {
			"{atLeast: 1m}", "{atLeast: 1m}\n    maximumExecution: 59s",
			document.Fault{Line: 24, Path: "arrivals[0].shapes[0].maximumExecution",
				Text: "59s is less than runFor.atLeast, which is 1m0s, so no such Job could succeed; give more"}},
		"more retries than memory is for": {
			"  - pods: 2", "  - pods: 2\n    retries: 1001",
			document.Fault{Line: 22, Path: "arrivals[0].shapes[0].retries", Text: "it is 1001; give a number from 0 to 1000"}},
		"more pods than memory is for": {
			"  - pods: 2", "  - pods: 1000\n    retries: 1000",
			document.Fault{Line: 17, Path: "arrivals",
				Text: "there are 3003000 pods, each counted with its retries, together; give at most 1000000"}},
		"more Jobs than a machine holds": {
			"arrivals:\n", "arrivals:\n- {name: many, count: 99998, shapes: [{pods: 1, requests: {cpu: 1}, runFor: {atLeast: 1m}}]}\n",
			document.Fault{Line: 17, Path: "arrivals", Text: "there are 100001 Jobs together; give at most 100000"}},
		"more nodes than a machine holds": {
			"nodes:\n", "nodes:\n- {name: many, count: 10000, capacity: {cpu: 4, memory: 8Gi}}\n",
			document.Fault{Line: 5, Path: "nodes", Text: "there are 10001 nodes together; give at most 10000"}},
		"run times that cannot be added up": {
			"arrivals:\n", "arrivals:\n- {name: long, count: 300, shapes: [{pods: 1, requests: {cpu: 1}, runFor: {atLeast: 8760h}}]}\n",
			document.Fault{Line: 17, Path: "arrivals",
				Text: "one after the other the Jobs run for 300 years; give fewer, or a shorter runFor: at most 200"}},
		"weights that cannot be added up": {
			"  shapes:\n", "  shapes:" + strings.Repeat("\n  - {weight: 1000000, pods: 1, requests: {cpu: 1}, runFor: {atLeast: 1m}}", 1001) + "\n",
			document.Fault{Line: 21, Path: "arrivals[0].shapes",
				Text: "their weights add up to 1001000000; give weights that add up to 1000000000 at most"}},
		"an amount that no machine has": {
			"requests: {cpu: 1}", "requests: {cpu: 1, memory: 1Ei}",
			document.Fault{Line: 22, Path: "arrivals[0].shapes[0].requests[memory]",
				Text: "it is 1Ei, which no machine has; give less than 100G of cpu, 100T of all else"}},
		"faults without end": {
			"ends: {atMost: 1h}", "faults: {faults: [{type: Kill, target: muster, every: 1s}]}\nends: {atMost: 28h}",
			document.Fault{Line: 24, Path: "faults.faults",
				Text: "there are 100801 times at which a fault comes until ends.atMost together; give at most 100000"}},
		"a resource that no machine has": {
			"requests: {cpu: 1}", "requests: {cpu: 1, nvidia.com/gpus: 8}",
			document.Fault{Line: 22, Path: "arrivals[0].shapes[0].requests[nvidia.com/gpus]",
				Text: "no machine has any; they have cpu, memory, pods"}},
		"a pod that is larger than any machine": {
			"requests: {cpu: 1}", "requests: {cpu: 5}",
			document.Fault{Line: 22, Path: "arrivals[0].shapes[0].requests[cpu]",
				Text: "it is 5, but the largest machine has 4; ask for less, or give larger machines"}},
		"a pod that no one machine has all of": {
			"  count: 1\n  capacity: {cpu: 4, memory: 8Gi}\ngroups:\n- metadata: {name: pool}\n  spec:\n    provider: kwok\n    maxNodes: 2\n    " +
				"template:\n      capacity: {cpu: 4, memory: 8Gi}\n    kwok: {bootDelay: 30s}\narrivals:\n- name: job\n  count: 3\n  when: {every: " +
				"10s}\n  shapes:\n  - pods: 2\n    requests: {cpu: 1}",
			"  count: 1\n  capacity: {cpu: 4, memory: 8Gi}\n- {name: wide, count: 1, capacity: {cpu: 8, memory: 4Gi}}\narrivals:\n- name: job\n  " +
				"count: 3\n  shapes:\n  - pods: 2\n    requests: {cpu: 8, memory: 8Gi}",
			document.Fault{Line: 14, Path: "arrivals[0].shapes[0].requests",
				Text: "no machine has room for all of it in one pod; ask for less, or give larger machines"}},
		"a gang that all machines together are too small for": {
			"  - pods: 2\n    requests: {cpu: 1}", "  - pods: 4\n    together: true\n    requests: {cpu: 3}",
			document.Fault{Line: 21, Path: "arrivals[0].shapes[0].pods",
				Text: "it is 4, but all machines have room for 3 at once; give fewer pods or more machines, or mayNotFit: true if that is what the " +
					"scenario shows"}},
		"a label that no machine has": {
			"requests: {cpu: 1}", "requests: {cpu: 1}\n    nodeSelector: {muster.dev/node-group: pol}",
			document.Fault{Line: 23, Path: "arrivals[0].shapes[0].nodeSelector[muster.dev/node-group]",
				Text: `no node or group has the value "pol"; there are pool`}},
		"labels of two machines": {
			"requests: {cpu: 1}", "requests: {cpu: 1}\n    nodeSelector: {muster.dev/node-group: pool, kubernetes.io/hostname: node-0}",
			document.Fault{Line: 23, Path: "arrivals[0].shapes[0].nodeSelector",
				Text: "no node or group has all of these labels; select one that there is"}},
		"a queue that there is not": {
			"  count: 3", "  count: 3\n  queue: batch",
			document.Fault{Line: 19, Path: "arrivals[0].queue",
				Text: `there is no LocalQueue "batch" in namespace default; there is none: choose one, or add it to objects`}},
		"a queue of another namespace": {
			"arrivals:\n- name: job\n", queues + "arrivals:\n- name: job\n  namespace: other\n  queue: batch\n",
			document.Fault{Line: 22, Path: "arrivals[0].queue",
				Text: `there is no LocalQueue "batch" in namespace other; there is none: choose one, or add it to objects`}},
		"a queue that not every team has": {
			"arrivals:\n- name: job\n",
			queues +
				"teams: {name: team, count: 2, objects: [{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: gpus, namespace: " +
				"$(team)}, spec: {clusterQueue: batch}}]}\narrivals:\n- name: job\n  namespace: $(team)\n  queue: gpu\n",
			document.Fault{Line: 23, Path: "arrivals[0].queue",
				Text: `there is no LocalQueue "gpu" in namespace team-000; there are gpus: choose one, or add it to objects`}},
		"a queue of no ClusterQueue": {
			"arrivals:\n", strings.Replace(queues, "clusterQueue: batch", "clusterQueue: btach", 1) + "arrivals:\n",
			document.Fault{Line: 18, Path: "objects[1].spec.clusterQueue",
				Text: `there is no ClusterQueue "btach"; there are batch: choose one, or add it to objects`}},
		"a priority that there is not": {
			"  - pods: 2", "  - pods: 2\n    priority: urgent",
			document.Fault{Line: 22, Path: "arrivals[0].shapes[0].priority",
				Text: `there is no WorkloadPriorityClass "urgent"; there is none: choose one, or add it to objects`}},
		"a group among the objects": {
			"arrivals:\n", "objects: [{apiVersion: muster.dev/v1alpha1, kind: NodeGroup, metadata: {name: other}}]\narrivals:\n",
			document.Fault{Line: 16, Path: "objects[0]", Text: "a NodeGroup has its place in groups; move it there"}},
		"a node among the objects": {
			"arrivals:\n", "objects: [{apiVersion: v1, kind: Node, metadata: {name: other}}]\narrivals:\n",
			document.Fault{Line: 16, Path: "objects[0]", Text: "a Node has its place in nodes; move it there"}},
		"no end": {
			"ends: {atMost: 1h}", "ends: {}",
			document.Fault{Line: 24, Path: "ends.atMost", Text: "it is 0s; give a duration greater than 0, such as 10m"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(sound, tc.old, tc.new, 1)
			if text == sound {
				t.Fatalf("%q is not in the sound file", tc.old)
			}
			_, err := Read([]byte(text))
			var faults document.Faults
			if !errors.As(err, &faults) {
				t.Fatalf("it was read; error %v", err)
			}
			if diff := cmp.Diff(document.Faults{tc.want}, faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFaultsOfRequestsThatMusterMakes(t *testing.T) {
	for resource, want := range map[string]bool{
		"provisioningrequests/status": true, "workloads/status": true, "nodes": true, "jobs": true, "machines": true, "leases": true, "events": true, "configmaps": true,
		"secrets": true,
		"node":    false, "statefulsets/scale": false, "workloads/finalizers": false,
	} {
		text := strings.Replace(sound, "ends:", "faults: {faults: [{type: CutWatches, target: muster, resources: ["+resource+"]}]}\nends:", 1)
		if _, err := Read([]byte(text)); (err == nil) != want {
			t.Errorf("%s: error %v, want it taken: %t", resource, err, want)
		}
	}
}

func TestWhatIsUnusualAndTaken(t *testing.T) {
	for name, tc := range map[string]struct{ old, new string }{
		"a gang that is meant to find no room": {
			"  - pods: 2\n", "  - pods: 200\n    together: true\n    mayNotFit: true\n"},
		"pods that run one after the other": {
			"  - pods: 2\n", "  - pods: 200\n"},
		"a gang that may start with fewer": {
			"arrivals:\n- name: job\n  count: 3\n  when: {every: 10s}\n  shapes:\n  - pods: 2\n",
			queues +
				"arrivals:\n- name: job\n  queue: batch\n  count: 3\n  shapes:\n  - pods: 200\n    annotations: " +
				"{kueue.x-k8s.io/job-min-parallelism: \"1\"}\n"},
		"a node by its host name": {
			"  - pods: 2\n", "  - pods: 2\n    nodeSelector: {kubernetes.io/hostname: node-0}\n"},
		"a capacity type that a group does not name": {
			"  - pods: 2\n", "  - pods: 2\n    nodeSelector: {muster.dev/capacity-type: on-demand}\n"},
		"a queue of each team": {
			"arrivals:\n- name: job\n",
			queues +
				"teams: {name: team, count: 2, objects: [{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: gpus, namespace: " +
				"$(team)}, spec: {clusterQueue: batch}}]}\narrivals:\n- name: job\n  namespace: $(team)\n  queue: gpus\n"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(sound, tc.old, tc.new, 1)
			if text == sound {
				t.Fatalf("%q is not in the sound file", tc.old)
			}
			if _, err := Read([]byte(text)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAllErrorsAreReportedAtOnceInOrder(t *testing.T) {
	_, err := Read([]byte(strings.NewReplacer("count: 3", "count: x", "count: 1", "count: y").Replace(sound)))
	want := `line 6: nodes[0].count: "y" is not a whole number of 32 bits
line 18: arrivals[0].count: "x" is not a whole number of 32 bits`
	if err == nil || err.Error() != want {
		t.Errorf("told:\n%v\nwant:\n%s", err, want)
	}
}

func TestNamesAreReportedWithNumbers(t *testing.T) {
	_, err := Read([]byte(strings.NewReplacer("count: 3", "count: 0\n  queue: batch", "- pods: 2",
		"- pods: 0\n    priority: high").Replace(sound)))
	want := `line 18: arrivals[0].count: it is 0; give a number from 1 to 100000
line 19: arrivals[0].queue: there is no LocalQueue "batch" in namespace default; there is none: choose one, or add it to objects
line 22: arrivals[0].shapes[0].pods: it is 0; give a number from 1 to 10000
line 23: arrivals[0].shapes[0].priority: there is no WorkloadPriorityClass "high"; there is none: choose one, or add it to objects`
	if err == nil || err.Error() != want {
		t.Errorf("told:\n%v\nwant:\n%s", err, want)
	}
}

func TestTheLibraryIsSound(t *testing.T) {
	if len(Names()) == 0 {
		t.Fatal("the library is empty")
	}
	for _, name := range Names() {
		text, err := Text(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Read(text)
		if err != nil {
			t.Errorf("%s:\n%v", name, err)
			continue
		}
		if !strings.HasPrefix(string(text), "# ") {
			t.Errorf("%s: no comment explains its bound", name)
		}
		if b := s.Bound(); b.FIFO.Duration <= 0 || b.FIFO.Duration > s.Ends.AtMost.Duration || b.Impossible > 0 {
			t.Errorf("%s: it ends after %s, but its bound is %s, with %d Jobs that fit nowhere", name, s.Ends.AtMost.Duration,
				b.FIFO.Duration, b.Impossible)
		}
	}
	if _, err := Text("nothing"); err == nil || !strings.Contains(err.Error(), Names()[0]) {
		t.Errorf("error %v does not say what there is", err)
	}
}
