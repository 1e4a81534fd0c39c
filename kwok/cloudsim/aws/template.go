package aws

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

// What groups call versions of a launch template.
const (
	latestVersion  = "$Latest"
	defaultVersion = "$Default"
)

// templateVersion is a version of a launch template.
type templateVersion struct {
	*Template
	number    int
	isDefault bool
}

// Revise makes a new version of a launch template, and its default if that is wanted. It returns its number.
func (f *Front) Revise(template string, change func(*Template), isDefault bool) (number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := *f.version(template, latestVersion).Template
	change(&next)
	f.revisions[next.ID] = append(f.revisions[next.ID], next)
	number = len(f.revisions[next.ID]) + 1
	if isDefault {
		f.defaults[next.ID] = number
	}
	return number
}

// version of a launch template, by its name or ID and by number or what groups call it; nil for one that does not exist.
func (f *Front) version(template, version string) *templateVersion {
	t := f.config.template(template)
	if t == nil {
		return nil
	}
	latest, standard := len(f.revisions[t.ID])+1, max(f.defaults[t.ID], 1)
	number := standard
	switch version {
	case "", defaultVersion:
	case latestVersion:
		number = latest
	default:
		var err error
		if number, err = strconv.Atoi(version); err != nil || number < 1 || number > latest {
			return nil
		}
	}
	if number > 1 {
		t = &f.revisions[t.ID][number-2]
	}
	return &templateVersion{t, number, number == standard}
}

// templateOf reads which launch template a call means, by the keys that begin with the
// prefix, and which version of it.
func (f *Front) templateOf(p *params, prefix, version string) *templateVersion {
	id, name, number := p.text(prefix+"LaunchTemplateId"), p.text(prefix+"LaunchTemplateName"), p.text(version)
	switch t := f.version(id+name, number); {
	case t != nil:
		return t
	case f.config.template(id+name) != nil:
		panic(&cloudsim.Error{Code: "InvalidLaunchTemplateId.VersionNotFound",
			Message: fmt.Sprintf("Could not find the specified version %s", number)})
	case id != "":
		panic(&cloudsim.Error{Code: "InvalidLaunchTemplateId.NotFound",
			Message: fmt.Sprintf("The specified launch template, with template ID %s, does not exist.", id)})
	default:
		panic(&cloudsim.Error{Code: "InvalidLaunchTemplateName.NotFoundException",
			Message: fmt.Sprintf("The specified launch template, with template name %s, does not exist.", name)})
	}
}

func (f *Front) describeLaunchTemplateVersions(p *params) []element {
	versions := p.texts("LaunchTemplateVersion")
	var found []*templateVersion
	switch {
	case p.has("LaunchTemplateId") || p.has("LaunchTemplateName"):
		if len(versions) != 1 {
			panic(invalid("only the description of one version of a launch template is simulated"))
		}
		found = append(found, f.templateOf(p, "", "LaunchTemplateVersion.1"))
	case slices.ContainsFunc(versions, func(v string) bool { return v != latestVersion && v != defaultVersion }):
		panic(invalid("Versions of all launch templates may be $Latest and $Default"))
	default:
		for _, t := range f.config.Templates {
			for _, version := range versions {
				v := f.version(t.ID, version)
				if !slices.ContainsFunc(found, func(old *templateVersion) bool { return old.Template == v.Template }) {
					found = append(found, v)
				}
			}
		}
	}
	found, next := page(f, p, "MaxResults", found)
	p.checkRead()
	return []element{el("launchTemplateVersionSet", each("item", found, func(v *templateVersion) []element {
		return []element{el("launchTemplateId", v.ID), el("launchTemplateName", v.Name), el("versionNumber", v.number),
			el("defaultVersion", v.isDefault), el("launchTemplateData", templateData(v.Template))}
	})), el("nextToken", next)}
}

func templateData(t *Template) []element {
	data := []element{el("imageId", "ami-0")}
	if t.Type != "" {
		data = append(data, el("instanceType", t.Type))
	}
	if t.MarketType != "" {
		data = append(data, el("instanceMarketOptions", el("marketType", t.MarketType)))
	}
	if t.Reservation != "" {
		data = append(data, el("capacityReservationSpecification", el("capacityReservationTarget", el("capacityReservationId", t.Reservation))))
	}
	if len(t.Interfaces) > 0 {
		data = append(data, el("networkInterfaceSet", each("item", t.Interfaces, func(i Interface) []element {
			return []element{el("interfaceType", i.Type), el("networkCardIndex", i.Card), el("deviceIndex", i.Device),
				el("groupSet", texts("groupId", i.Groups))}
		})))
	}
	if t.VolumeGiB > 0 || t.KeepsVolumes {
		data = append(data, el("blockDeviceMappingSet", el("item", el("deviceName", "/dev/xvda"),
			el("ebs", el("volumeSize", t.VolumeGiB), el("deleteOnTermination", !t.KeepsVolumes)))))
	}
	var placement []element
	if t.PlacementGroup != "" {
		placement = append(placement, el("groupName", t.PlacementGroup))
	}
	if t.Tenancy != "" {
		placement = append(placement, el("tenancy", t.Tenancy))
	}
	if len(placement) > 0 {
		data = append(data, el("placement", placement))
	}
	if t.Protected {
		data = append(data, el("disableApiTermination", true))
	}
	return data
}
