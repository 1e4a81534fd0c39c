package jobs

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
)

const (
	// maxName is how long an object's name may be.
	maxName = 253
	// hashLength is how many hex digits of the hash end a Workload's name.
	hashLength = 5
)

// WorkloadName is the name of a Job's Workload. It is Kueue's, so that a cluster
// which has used Kueue keeps its Workloads: the kind and name of the owner, and a
// hash of these, its group and its UID.
func WorkloadName(job *batchv1.Job) string {
	sum := sha1.Sum([]byte(strings.Join([]string{"Job", batchv1.GroupName, job.Name, string(job.UID)}, "\n")))
	prefix := "job-" + job.Name
	if limit := maxName - hashLength - 1; len(prefix) > limit {
		prefix = prefix[:limit]
	}
	return prefix + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
