package aws

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

func config() Config {
	return Config{
		Region:    "us-east-1",
		Subnets:   []Subnet{{ID: "subnet-a", Zone: "us-east-1a"}},
		Types:     []Type{{Name: "p5.48xlarge", VCPUs: 192, MemoryMiB: 1 << 21}},
		Templates: []Template{{ID: "lt-1", Name: "gpu", Type: "p5.48xlarge"}},
		Groups:    []Group{{Name: "gpu", Max: 8, Template: "gpu", Subnets: []string{"subnet-a"}}},
	}
}

func serve(t *testing.T, c Config) (*cloudsim.World, string) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	world, err := cloudsim.New(cloudsim.Config{Pools: []cloudsim.Pool{{PoolKey: cloudsim.PoolKey{
		Cloud: v1alpha1.ProviderAWS, Type: "p5.48xlarge", Zone: "us-east-1a", CapacityType: v1alpha1.OnDemand,
	}, Script: v1alpha1.KwokPool{Domains: &racks}}}}, clock)
	if err != nil {
		t.Fatal(err)
	}
	front, err := New(c, world)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(world.Handler(front))
	t.Cleanup(server.Close)
	return world, server.URL
}

func post(t *testing.T, to string, form string) (int, string) {
	t.Helper()
	values, err := url.ParseQuery(form)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.PostForm(to, values)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

const (
	ec2Call   = "Version=2016-11-15&Action="
	groupCall = "Version=2011-01-01&Action="
	run       = ec2Call + "RunInstances&LaunchTemplate.LaunchTemplateId=lt-1&SubnetId=subnet-a&MinCount=1&MaxCount=1&ClientToken=t"
	grow      = groupCall +
		"LaunchInstances&AutoScalingGroupName=gpu&RequestedCapacity=2&AvailabilityZones.member.1=us-east-1a&RetryStrategy=none&ClientToken=t"
)

// EC2's filters have wildcards, those of Auto Scaling have none.
func TestWildcardsOfFilters(t *testing.T) {
	tags := map[string]string{"team": "red", "kubernetes.io/cluster/a": "owned", "star": "a*b"}
	for name, c := range map[string]struct {
		filter, value string
		ec2, groups   bool
	}{
		"a value":                       {"tag:team", "red", true, true},
		"another value":                 {"tag:team", "blue", false, false},
		"the begin of a value":          {"tag:team", "r*", true, false},
		"a value without its begin":     {"tag:team", "*e", false, false},
		"a character":                   {"tag:team", "r?d", true, false},
		"no character":                  {"tag:team", "red?", false, false},
		"a key with a slash":            {"tag-key", "kubernetes.io*", true, false},
		"a key":                         {"tag-key", "kubernetes.io/cluster/a", true, true},
		"a dot stands for itself":       {"tag-key", "kubernetes?io/*", true, false},
		"a dot stands for nothing else": {"tag:team", "r.*", false, false},
		"an escaped star":               {"tag:star", `a\*b`, true, false},
		"an escaped star elsewhere":     {"tag:team", `r\*`, false, false},
		"a tag that is not there":       {"tag:owner", "*", false, false},
		"an attribute":                  {"state", "act*", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, attributes := filters{c.filter: {"none", c.value}}, map[string]string{"state": "active"}
			if got := wildcards(f).match(attributes, tags); got != c.ec2 {
				t.Errorf("EC2: %v, want %v", got, c.ec2)
			}
			if got := f.match(attributes, tags); got != c.groups {
				t.Errorf("Auto Scaling: %v, want %v", got, c.groups)
			}
		})
	}
}

// Unsupported calls fail and change nothing.
func TestUnknownCallsGetTheCloudsOwnError(t *testing.T) {
	for name, c := range map[string]struct {
		form   string
		status int
		want   string
	}{
		"a call of EC2":             {ec2Call + "StopInstances", 400, "<Errors><Error><Code>InvalidAction</Code><Message>The action StopInstances is not valid for this web service.</Message></Error></Errors>"},
		"a call of Auto Scaling":    {groupCall + "SetDesiredCapacity", 400, "<ErrorResponse><Error><Type>Sender</Type><Code>InvalidAction</Code>"},
		"a call of nobody":          {"Action=Whatever", 400, "<Code>InvalidAction</Code>"},
		"a parameter of EC2":        {run + "&KeyName=mine", 400, "<Code>UnknownParameter</Code><Message>The parameter KeyName is not recognized</Message>"},
		"a parameter of the group":  {grow + "&SubnetIds.member.1=subnet-a", 400, "<Code>UnknownParameter</Code>"},
		"a filter":                  {ec2Call + "DescribeInstances&Filter.1.Name=color&Filter.1.Value.1=red", 400, "<Code>InvalidParameterValue</Code>"},
		"a fleet that is no moment": {ec2Call + "CreateFleet&Type=maintain", 400, "only instant fleets are simulated"},
		"a number that is none":     {strings.Replace(run, "MaxCount=1", "MaxCount=x", 1), 400, "MaxCount is &#34;x&#34;: it must be a number"},
		"a dry run":                 {run + "&DryRun=true", 412, "<Code>DryRunOperation</Code>"},
		"above the group's maximum": {strings.Replace(grow, "Capacity=2", "Capacity=9", 1), 400, "is above max value 8"},
	} {
		t.Run(name, func(t *testing.T) {
			world, to := serve(t, config())
			status, body := post(t, to, c.form)
			if status != c.status || !strings.Contains(body, c.want) {
				t.Errorf("got %d %s, want %d %s", status, body, c.status, c.want)
			}
			if n := len(world.Instances(true)); n > 0 {
				t.Errorf("%d instances were made", n)
			}
		})
	}
}

func TestTokens(t *testing.T) {
	for name, c := range map[string]struct{ form, other, code string }{
		"EC2":          {run, strings.Replace(run, "MaxCount=1", "MaxCount=2", 1), "IdempotentParameterMismatch"},
		"Auto Scaling": {grow, strings.Replace(grow, "Capacity=2", "Capacity=3", 1), "IdempotentParameterMismatchError"},
	} {
		t.Run(name, func(t *testing.T) {
			world, to := serve(t, config())
			_, first := post(t, to, c.form)
			made := len(world.Instances(true))
			if _, second := post(t, to, c.form); second != first || made == 0 {
				t.Errorf("the same call got %s, first %s", second, first)
			}
			if status, body := post(t, to, c.other); status != 400 || !strings.Contains(body, "<Code>"+c.code+"</Code>") {
				t.Errorf("another call with the token got %d %s", status, body)
			}
			if n := len(world.Instances(true)); n != made {
				t.Errorf("%d instances, want %d", n, made)
			}
		})
	}
}

func TestPages(t *testing.T) {
	c := config()
	c.PageSize = 2
	_, to := serve(t, c)
	for i := range 5 {
		post(t, to, strings.Replace(run, "ClientToken=t", "ClientToken="+string(rune('a'+i)), 1))
	}
	next, seen := "", 0
	for {
		_, body := post(t, to, ec2Call+"DescribeInstances&NextToken="+next)
		seen += strings.Count(body, "<instanceId>")
		_, rest, _ := strings.Cut(body, "<nextToken>")
		if next, _, _ = strings.Cut(rest, "<"); next == "" {
			break
		}
	}
	if seen != 5 {
		t.Errorf("%d instances on all pages, want 5", seen)
	}
	if status, _ := post(t, to, ec2Call+"DescribeInstances&NextToken=nonsense"); status != 400 {
		t.Errorf("a token of nobody got %d", status)
	}
}

func TestAGroupReplacesWhatItLosesUnlessItMayNot(t *testing.T) {
	for suspended, want := range map[string]int{"": 3, "ReplaceUnhealthy": 2} {
		c := config()
		c.Groups[0].Suspended = []string{suspended}
		world, to := serve(t, c)
		post(t, to, grow)
		world.Terminate(world.Instances(true)[0].ID)
		post(t, to, groupCall+"DescribeAutoScalingGroups")
		if n := len(world.Instances(true)); n != want {
			t.Errorf("suspended %q: %d instances were ever made, want %d", suspended, n, want)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"": func(*Config) {},
		"region is missing: give a region, for example us-east-1":                        func(c *Config) { c.Region = "" },
		`subnets[0]: id is "subnet-a" and zone "": give both`:                            func(c *Config) { c.Subnets[0].Zone = "" },
		`templates[0]: id is "" and name "gpu": give both`:                               func(c *Config) { c.Templates[0].ID = "" },
		`templates[0].marketType is "cheap": it must be spot, capacity-block or empty`:   func(c *Config) { c.Templates[0].MarketType = "cheap" },
		`templates[0].type is "p9": it must be the name of one of types`:                 func(c *Config) { c.Templates[0].Type = "p9" },
		`types[0]: name is "p5.48xlarge", vCPUs 0 and memoryMiB 2097152: give all three`: func(c *Config) { c.Types[0].VCPUs = 0 },
		`types[0].sold has "cheaply": it must be of on-demand, spot, capacity-block`:     func(c *Config) { c.Types[0].Sold = []string{"cheaply"} },
		`groups[1].name is "gpu": each group needs a name of its own`:                    func(c *Config) { c.Groups = append(c.Groups, c.Groups[0]) },
		`groups[0]: min is 9 and max 8: min must not be negative, nor max less than min`: func(c *Config) { c.Groups[0].Min = 9 },
		`groups[0].template is "old": it must be the name of one of templates`:           func(c *Config) { c.Groups[0].Template = "old" },
		`groups[0].subnets is empty: name at least one of subnets by its id`:             func(c *Config) { c.Groups[0].Subnets = nil },
		`groups[0].subnets[0] is "subnet-b": it must be the id of one of subnets`:        func(c *Config) { c.Groups[0].Subnets = []string{"subnet-b"} },
		`groups[0].mixed.onDemandPercent is 101: it must be between 0 and 100`:           func(c *Config) { c.Groups[0].Mixed = &Mixed{OnDemandPercent: 101} },
	} {
		c := config()
		change(&c)
		got := ""
		if err := c.Validate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Both what was launched and what was refused name the template and the overrides of the call.
func TestAFleetAnswersWithTheTemplateAndItsOverrides(t *testing.T) {
	config := config()
	config.Subnets = append(config.Subnets, Subnet{ID: "subnet-full", Zone: "us-east-1a", Full: true})
	_, to := serve(t, config)
	for subnet, set := range map[string]string{"subnet-a": "fleetInstanceSet", "subnet-full": "errorSet"} {
		status, body := post(t, to, ec2Call+"CreateFleet&Type=instant&ClientToken="+subnet+
			"&LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateId=lt-1"+
			"&LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version=1"+
			"&LaunchTemplateConfigs.1.Overrides.1.InstanceType=p5.48xlarge&LaunchTemplateConfigs.1.Overrides.1.SubnetId="+subnet+
			"&TargetCapacitySpecification.TotalTargetCapacity=2&TargetCapacitySpecification.DefaultTargetCapacityType=on-demand")
		_, answer, _ := strings.Cut(body, "<"+set+">")
		want := "<launchTemplateAndOverrides><launchTemplateSpecification><launchTemplateId>lt-1</launchTemplateId><version>1</version>" +
			"</launchTemplateSpecification><overrides><instanceType>p5.48xlarge</instanceType><subnetId>" + subnet + "</subnetId></overrides>" +
			"</launchTemplateAndOverrides>"
		if status != 200 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want %s in %s", subnet, status, body, want, set)
		}
	}
}
