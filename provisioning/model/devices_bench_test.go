package model

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
)

// BenchmarkPlanClaims plans a gang of 1,000 pods with two GPUs each on 5,000 nodes of 20 kinds, half of whose GPUs are allocated,
// once by claim and once by amount. The ratio of the two in one run is the cost of claims.
func BenchmarkPlanClaims(b *testing.B) {
	const nodes, kinds = 5000, 20
	for _, by := range []string{"amount", "claim"} {
		b.Run(by, func(b *testing.B) {
			m, v := newModel()
			if by == "claim" {
				class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", ResourceVersion: v.next()}}
				class.Spec.ExtendedResourceName = new(string(gpu))
				m.Set(class)
			}
			for i := range nodes {
				name := fmt.Sprintf("n-%04d", i)
				taken := int64(i % 5)
				m.Set(v.node(func(n *corev1.Node) {
					n.Name = name
					n.Labels = map[string]string{"kind": fmt.Sprint(i % kinds)}
					n.Status.Allocatable["cpu"] = resource.MustParse("96")
					if by == "claim" {
						delete(n.Status.Allocatable, gpu)
					}
				}))
				if by == "amount" {
					m.Set(v.pod("p-"+name, name, taken))
					continue
				}
				s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: v.next()}}
				s.Spec = resourcev1.ResourceSliceSpec{Driver: "d", NodeName: &name,
					Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}}
				claim := v.claim("", 1)
				claim.Name, claim.OwnerReferences = name, nil
				claim.Status.Allocation = &resourcev1.AllocationResult{}
				for k := range 8 {
					s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", k),
						Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {IntValue: new(int64(i % kinds))}}})
					if int64(k) < taken {
						claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
							resourcev1.DeviceRequestAllocationResult{Driver: "d", Pool: name, Device: fmt.Sprintf("gpu-%d", k)})
					}
				}
				m.Set(s)
				m.Set(claim)
			}
			template := &corev1.PodTemplateSpec{}
			template.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{gpu: resource.MustParse("2")}, Limits: corev1.ResourceList{gpu: resource.MustParse("2")}}}}
			m.Snapshot(noon)
			b.ReportAllocs()
			for b.Loop() {
				s := m.Snapshot(noon)
				gang := state.Gang{Namespace: "ns", Name: "ns/gang", UID: "gang", PodSets: []state.PodSet{
					state.NewPodSet("ns", "workers", 1000, template, s.Objects)}}
				if plan := planner.Plan(s, gang, state.DefaultPolicy(state.CheckCapacity)); plan.Outcome != planner.Fits {
					b.Fatal(plan.Message())
				}
			}
		})
	}
}
