// Package advice estimates how likely Spot machines are to come, by the placement scores of EC2.
package advice

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

const (
	// fewestTypes is how many types a placement score needs: for fewer it is low
	// whatever there is.
	fewestTypes = 3
	// scoreFor is how long a score is good for. An account may request a limited
	// number of different ones a day, so that sizes are rounded up to powers of two.
	scoreFor = time.Hour
)

// Scores are placement scores of one region.
type Scores struct {
	region string
	api    *api.Client
	// known are scores by zone ID, by the question.
	known *poll.Recent[string, map[string]int32]
}

// New returns Scores.
func New(client *api.Client, region string, clock clock.PassiveClock) *Scores {
	return &Scores{region: region, api: client, known: poll.NewRecent[string, map[string]int32](scoreFor, clock)}
}

// Of does what a cloudprovider.Advisor does. A score
// is about all types that an Auto Scaling group allows, so nothing is said of groups
// with fewer than three.
func (s *Scores) Of(ctx context.Context, groups []*v1alpha1.NodeGroup, count int) (map[string]cloudprovider.Advice, error) {
	kinds := map[string][]string{}
	var subnets []string
	for _, g := range groups {
		if a := g.Spec.AWS; a != nil && g.Spec.CapacityType == v1alpha1.Spot && a.Region == s.region {
			if !slices.Contains(kinds[a.AutoScalingGroup], a.InstanceType) {
				kinds[a.AutoScalingGroup] = append(kinds[a.AutoScalingGroup], a.InstanceType)
			}
			if !slices.Contains(subnets, a.Subnet) {
				subnets = append(subnets, a.Subnet)
			}
		}
	}
	maps.DeleteFunc(kinds, func(_ string, list []string) bool { return len(list) < fewestTypes })
	out := map[string]cloudprovider.Advice{}
	if len(kinds) == 0 {
		return out, nil
	}
	where, err := asg.Subnets(ctx, s.api, subnets)
	if err != nil {
		return nil, fmt.Errorf("advice: %w", err)
	}
	for _, g := range groups {
		a := g.Spec.AWS
		if a == nil || g.Spec.CapacityType != v1alpha1.Spot || len(kinds[a.AutoScalingGroup]) == 0 {
			continue
		}
		found, err := s.fetch(ctx, kinds[a.AutoScalingGroup], count)
		if err != nil {
			return nil, fmt.Errorf("advice on Auto Scaling group %s: %w", a.AutoScalingGroup, err)
		}
		if score, ok := found[api.Deref(where[a.Subnet].AvailabilityZoneId)]; ok {
			// 10 is likely, not certain, and 1 is not impossible.
			out[g.Name] = cloudprovider.Advice{Chance: score*100 - 50, Source: "GetSpotPlacementScores"}
		}
	}
	return out, nil
}

func (s *Scores) fetch(ctx context.Context, kinds []string, count int) (map[string]int32, error) {
	target := 1
	for target < count {
		target *= 2
	}
	slices.Sort(kinds)
	question := fmt.Sprintf("%d %s", target, strings.Join(kinds, " "))
	if last, ok := s.known.Of(question); ok {
		return last, nil
	}
	found := map[string]int32{}
	list, err := s.api.GetSpotPlacementScores(ctx, &ec2.GetSpotPlacementScoresInput{
		TargetCapacity: aws.Int32(int32(target)), InstanceTypes: kinds, RegionNames: []string{s.region},
		SingleAvailabilityZone: aws.Bool(true),
	})
	if err != nil {
		return nil, err
	}
	for _, zone := range list {
		found[api.Deref(zone.AvailabilityZoneId)] = api.Deref(zone.Score)
	}
	s.known.Note(question, found)
	return found, nil
}
