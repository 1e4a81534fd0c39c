package fit

import (
	"strings"
	"testing"
)

const storage = `
kind: StorageClass
metadata: {name: wait}
provisioner: free.csi.example
volumeBindingMode: WaitForFirstConsumer
---
kind: StorageClass
metadata: {name: wait-in-a}
provisioner: free.csi.example
volumeBindingMode: WaitForFirstConsumer
allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a]}]}]
---
kind: StorageClass
metadata: {name: now}
provisioner: free.csi.example
volumeBindingMode: Immediate
---
kind: StorageClass
metadata: {name: static}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
kind: StorageClass
metadata: {name: old}
provisioner: kubernetes.io/gce-pd
volumeBindingMode: WaitForFirstConsumer
---
kind: StorageClass
metadata: {name: limited}
provisioner: limited.csi.example
volumeBindingMode: WaitForFirstConsumer
---
kind: StorageClass
metadata: {name: tracked}
provisioner: tracked.csi.example
volumeBindingMode: WaitForFirstConsumer
---
kind: CSIDriver
metadata: {name: tracked.csi.example}
spec: {storageCapacity: true}
---
kind: PersistentVolumeClaim
metadata: {name: data, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec: {volumeName: data}
---
`

// dataVolume is what the claim data is bound to.
func dataVolume(labels, spec string) string {
	return storage + "kind: PersistentVolume\nmetadata: {name: data, labels: {" + labels + "}}\nspec: {" + spec + "}\n"
}

func TestVolumesSayWhereTheirPodsRun(t *testing.T) {
	const claim = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]"
	const zone, beta = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
	const csi = "csi: {driver: free.csi.example, volumeHandle: v}"
	for _, tc := range []struct {
		name, manifests, spec string
		// nodes by their labels, separated by bars; want marks those that do.
		nodes, want string
	}{
		{
			name:      "a volume may be used anywhere",
			manifests: dataVolume("", csi), spec: claim,
			nodes: "zone=a|", want: "yes yes",
		},
		{
			name: "or where its node affinity says",
			manifests: dataVolume("", csi+", nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: "+
				"[a]}]}]}}"), spec: claim,
			nodes: "zone=a|zone=b|", want: "yes no no",
		},
		{
			name: "names of nodes do not count there",
			manifests: dataVolume("", csi+", nodeAffinity: {required: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, "+
				"values: [n7]}]}]}}"), spec: claim,
			nodes: "zone=a", want: "yes",
		},
		{
			name:      "or in its zones, where nodes have any",
			manifests: dataVolume(zone+": a__b", csi), spec: claim,
			nodes: zone + "=a|" + zone + "=b|" + zone + "=c|topology.kubernetes.io/region=r|", want: "yes yes no no yes",
		},
		{
			name:      "zones of old match those of today",
			manifests: dataVolume(beta+": a", csi), spec: claim,
			nodes: zone + "=a|" + zone + "=b|" + beta + "=a " + zone + "=b|" + beta + "=b " + zone + "=a", want: "yes no yes no",
		},
		{
			name:      "zones with a gap do not count",
			manifests: dataVolume(zone+": a____b", csi), spec: claim,
			nodes: zone + "=c", want: "yes",
		},
		{
			name: "a claim to be bound goes where its class provides",
			manifests: storage + `
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: wait-in-a}
`, spec: claim,
			nodes: "zone=a|zone=b", want: "yes no",
		},
		{
			name:      "so does a volume of each pod's own",
			manifests: storage, spec: "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: wait-in-a}}}}]",
			nodes: "zone=a|zone=b", want: "yes no",
		},
		{
			name:      "volumes without a claim are anywhere",
			manifests: storage, spec: "volumes: [{name: v, emptyDir: {}}, {name: w, configMap: {name: c}}, {name: x, nfs: {server: s, path: /}}]",
			nodes: "", want: "yes",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPod(t, "", tc.spec, cluster(t, tc.manifests))
			var got []string
			for _, labels := range strings.Split(tc.nodes, "|") {
				switch why := p.Mismatch("n1", set(labels), nil); {
				case why == "":
					got = append(got, "yes")
				case strings.Contains(why, "data") || strings.Contains(why, "claim v"):
					got = append(got, "no")
				default:
					t.Errorf("the reason does not name the claim: %s", why)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %v, want %s", got, tc.want)
			}
		})
	}
}

func TestAClaimThatIsBeingProvidedIsOnOneNode(t *testing.T) {
	p := newPod(t, "", "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]", cluster(t, storage+`
kind: PersistentVolumeClaim
metadata: {name: data, annotations: {volume.kubernetes.io/selected-node: n2}}
spec: {storageClassName: wait}
`))
	if p.Matches("n1", nil, nil) || !p.Matches("n2", nil, nil) {
		t.Error("it may run elsewhere")
	}
	if names, only := p.Names(); len(names) != 1 || names[0] != "n2" || !only {
		t.Errorf("Names are %v, only %t", names, only)
	}
}

func TestVolumesThatAreRefused(t *testing.T) {
	claimed := func(metadata, spec, status string) string {
		return storage + "kind: PersistentVolumeClaim\nmetadata: {name: data" + metadata + "}\nspec: {" + spec + "}\nstatus: {" + status + "}\n"
	}
	own := func(spec string) string {
		return "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {" + spec + "}}}}]"
	}
	const claim = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]"
	const claimField, ownField = "spec.volumes[0].persistentVolumeClaim", "spec.volumes[0].ephemeral"
	for _, tc := range []struct {
		name, manifests, spec string
		kind                  RefusalKind
		field, message        string
	}{
		{"a disk in the pod", storage, "volumes: [{name: v, gcePersistentDisk: {pdName: d}}]", Unsupported, "spec.volumes[0].gcePersistentDisk",
			"podSet w uses spec.volumes[0].gcePersistentDisk (a disk that is named in the pod spec), which Muster cannot judge: use a " +
				"persistentVolumeClaim"},
		{"a claim that does not exist", "", claim, Unready, claimField,
			"podSet w waits for PersistentVolumeClaim data, which does not exist (" + claimField + ")"},
		{"a claim that goes", claimed(", deletionTimestamp: '2026-01-01T00:00:00Z'", "", ""), claim, Unready, claimField,
			"podSet w waits for another PersistentVolumeClaim data, since this one is being deleted (" + claimField + ")"},
		{"a claim without its volume", claimed("", "volumeName: gone", "phase: Lost"), claim, Unready, claimField,
			"podSet w waits for another PersistentVolumeClaim data, since this one has lost its PersistentVolume gone (" + claimField + ")"},
		{"a claim half bound", claimed("", "volumeName: data", ""), claim, Unready, claimField,
			"podSet w waits for PersistentVolumeClaim data to be bound to PersistentVolume data (" + claimField + ")"},
		{"a bound claim whose volume is not there", storage, claim, Unready, claimField,
			"podSet w waits for PersistentVolume data of claim data, which does not exist (" + claimField + ")"},
		{"a claim for one pod", claimed("", "accessModes: [ReadWriteOncePod], storageClassName: wait", ""), claim, Impossible, claimField,
			"podSet w can never run: PersistentVolumeClaim data is for one pod at a time (accessModes ReadWriteOncePod), and there are 2 (" +
				claimField + ")"},
		{"a claim without class", claimed("", "", ""), claim, Unready, claimField,
			`podSet w waits for claim data to be bound, or a StorageClass "" that provides it (` + claimField + ")"},
		{"a claim of a class that does not exist", claimed("", "storageClassName: gone", ""), claim, Unready, claimField,
			`podSet w waits for claim data to be bound, or a StorageClass "gone" that provides it (` + claimField + ")"},
		{"a claim that is bound at once", claimed("", "storageClassName: now", ""), claim, Unready, claimField,
			"podSet w waits for claim data to be bound (StorageClass now binds at once) (" + claimField + ")"},
		{"a claim by annotation", claimed(", annotations: {volume.beta.kubernetes.io/storage-class: now}", "storageClassName: wait", ""), claim, Unready, claimField,
			"podSet w waits for claim data to be bound (StorageClass now binds at once) (" + claimField + ")"},
		{"a claim that the scheduler finds a volume for", claimed("", "storageClassName: static", ""), claim, Unsupported, claimField,
			"podSet w uses " + claimField +
				" (StorageClass static has no provisioner, the scheduler looks for a volume), which Muster cannot judge: bind the claim to a volume " +
				"first"},
		{"a claim of a provisioner of old, whose driver has limits", claimed("", "storageClassName: old", ""), claim, Unsupported, claimField,
			"podSet w uses " + claimField +
				" (nodes limit how many volumes of CSI driver pd.csi.storage.gke.io they take), which Muster cannot judge: use a driver without " +
				"limits, or run these pods without a request"},
		{"a claim with limits", claimed("", "storageClassName: limited", ""), claim, Unsupported, claimField,
			"podSet w uses " + claimField +
				" (nodes limit how many volumes of CSI driver limited.csi.example they take), which Muster cannot judge: use a driver without " +
				"limits, or run these pods without a request"},
		{"a claim with tracked capacity", claimed("", "storageClassName: tracked, resources: {requests: {storage: 1Gi}}", ""), claim, Unsupported, claimField,
			"podSet w uses " + claimField +
				" (CSIDriver tracked.csi.example tracks storage capacity), which Muster cannot judge: bind the claim first, or use another class"},
		{"a volume with limits", dataVolume("", "csi: {driver: limited.csi.example, volumeHandle: v}"), claim, Unsupported, claimField,
			"podSet w uses " + claimField +
				" (nodes limit how many volumes of CSI driver limited.csi.example they take), which Muster cannot judge: use a driver without " +
				"limits, or run these pods without a request"},
		{"a volume of old", dataVolume("", "awsElasticBlockStore: {volumeID: v}"), claim, Unsupported, claimField,
			"podSet w uses " + claimField +
				" (PersistentVolume data has a removed in-tree driver), which Muster cannot judge: recreate the volume with the CSI driver"},
		{"own volumes without class", storage, own(""), Unsupported, ownField,
			"podSet w uses " + ownField +
				" (its claims name no storage class), which Muster cannot judge: set storageClassName in the volumeClaimTemplate"},
		{"own volumes by name", storage, own("volumeName: data"), Unsupported, ownField,
			"podSet w uses " + ownField + " (its claims name PersistentVolume data), which Muster cannot judge: use a persistentVolumeClaim"},
		{"own volumes that are provided anywhere", storage, own("storageClassName: now"), Unsupported, ownField,
			"podSet w uses " + ownField +
				" (StorageClass now binds its volumes without regard to the node), which Muster cannot judge: use a class with volumeBindingMode " +
				"WaitForFirstConsumer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, got := NewPod("team", "w", 2, template(t, "", tc.spec), cluster(t, tc.manifests))
			if want := (Refusal{tc.kind, tc.field, tc.message}); got != want {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestWithoutLookupsVolumesAreRefused(t *testing.T) {
	for _, volume := range []string{"persistentVolumeClaim: {claimName: data}",
		"ephemeral: {volumeClaimTemplate: {spec: {storageClassName: wait}}}"} {
		_, got := NewPod("team", "w", 1, template(t, "", "volumes: [{name: v, "+volume+"}]"), Objects{})
		if got.Kind != Unsupported || !strings.Contains(got.Message, got.Field) {
			t.Errorf("%s: %+v", volume, got)
		}
	}
}
