package controller

import (
	"cmp"
	"context"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
)

// CreateMirror creates a mirror with a random id.
func (c *Controller) CreateMirror(ctx context.Context, req *mirrormsg.CreateMirrorRequest) (*mirrormsg.CreateMirrorResponse, error) {
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, *mirrormsg.CreateMirrorResponse) {
		resp := mirrormsg.NewPtrCreateMirrorResponse()
		recs, err := createMirror(img, &c.env, req)
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
		return recs, resp
	})
}

func createMirror(img *meta.Image, env *Env, req *mirrormsg.CreateMirrorRequest) ([]meta.Record, error) {
	name := req.MirrorName
	if err := mirrormsg.CheckMirrorName(name); err != nil {
		return nil, err
	}
	if img.Mirror(name) != nil {
		return nil, mirrormsg.Errorf(mirrormsg.MirrorAlreadyExists, "Mirror '%s' already exists.", name)
	}
	set := map[string]string{}
	for _, c := range req.Config {
		if c.Value == nil {
			return nil, mirrormsg.Errorf(kerr.InvalidConfig, "Configuration %s has no value.", c.Name)
		}
		if _, twice := set[c.Name]; twice {
			return nil, mirrormsg.Errorf(kerr.InvalidConfig, "Configuration %s is given twice.", c.Name)
		}
		set[c.Name] = *c.Value
	}
	if err := configs.Mirror.CheckAll(set); err != nil {
		return nil, mirrormsg.Errorf(kerr.InvalidConfig, "%v", err)
	}
	if err := refuseSelf(img, set); err != nil {
		return nil, err
	}
	recs := []meta.Record{&meta.CreateMirror{Name: name, ID: env.newID(img)}}
	return append(recs, configDiff(meta.Resource{Type: meta.ResourceMirror, Name: name}, nil, set)...), nil
}

// refuseSelf refuses a mirror whose source is said to be this cluster.
func refuseSelf(img *meta.Image, config map[string]string) error {
	if id := config["source.cluster.id"]; id != "" && id == img.ClusterID() {
		return mirrormsg.Errorf(kerr.InvalidConfig, "source.cluster.id=%s is this cluster itself; a cluster cannot mirror itself.", id)
	}
	return nil
}

// DeleteMirror removes a mirror whose topics are all stopped, and sets them free.
// Their barrier ends stay, so that a log that lost its barrier is still noticed.
func (c *Controller) DeleteMirror(ctx context.Context, req *mirrormsg.DeleteMirrorRequest) (*mirrormsg.DeleteMirrorResponse, error) {
	return do(ctx, c, func(img *meta.Image) ([]meta.Record, *mirrormsg.DeleteMirrorResponse) {
		resp := mirrormsg.NewPtrDeleteMirrorResponse()
		recs, err := deleteMirror(img, req.MirrorName)
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
		return recs, resp
	})
}

func deleteMirror(img *meta.Image, name string) ([]meta.Record, error) {
	if img.Mirror(name) == nil {
		return nil, mirrormsg.Errorf(mirrormsg.UnknownMirror, "There is no mirror '%s'.", name)
	}
	var recs []meta.Record
	for _, t := range img.MirrorTopics(name) {
		if _, state := img.TopicMirror(t.Name); state != meta.MirrorStopped {
			return nil, mirrormsg.Errorf(mirrormsg.MirrorNotEmpty, "Mirror '%s' has topics that are not stopped, for example '%s' (%s).", name, t.Name, state)
		}
		res := meta.Resource{Type: meta.ResourceTopic, Name: t.Name}
		recs = append(recs, &meta.SetConfig{Resource: res, Key: meta.ConfigMirrorName}, &meta.SetConfig{Resource: res, Key: meta.ConfigMirrorStart})
	}
	return append(recs, &meta.RemoveMirror{Name: name}), nil
}

// SetSourceClusterID keeps the source's cluster id, once, at the first contact
// (SPEC section 8). It returns the id that holds for the mirror with this id.
func (c *Controller) SetSourceClusterID(ctx context.Context, mirror string, mirrorID [16]byte, clusterID string) (string, error) {
	type answer struct {
		holds string
		err   error
	}
	a, err := do(ctx, c, func(img *meta.Image) ([]meta.Record, answer) {
		m := img.Mirror(mirror)
		if m == nil || m.ID != mirrorID {
			return nil, answer{"", mirrormsg.UnknownMirror}
		}
		if holds := img.Config(meta.ResourceMirror, mirror)["source.cluster.id"]; holds != "" {
			return nil, answer{holds, nil}
		}
		res := meta.Resource{Type: meta.ResourceMirror, Name: mirror}
		return []meta.Record{&meta.SetConfig{Resource: res, Key: "source.cluster.id", Value: &clusterID}}, answer{clusterID, nil}
	})
	return a.holds, cmp.Or(err, a.err)
}
