package jobs

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
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
// hash of these, its group and its UID. An elastic Job may have several Workloads,
// so that its generation is part of the hash.
func WorkloadName(job *batchv1.Job) string {
	parts := []string{"Job", batchv1.GroupName, job.Name, string(job.UID)}
	if isElastic(job) {
		parts = append(parts, strconv.FormatInt(job.Generation, 10))
	}
	sum := sha1.Sum([]byte(strings.Join(parts, "\n")))
	prefix := "job-" + job.Name
	if limit := maxName - hashLength - 1; len(prefix) > limit {
		prefix = prefix[:limit]
	}
	return prefix + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
