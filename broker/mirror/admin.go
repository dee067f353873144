package mirror

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"stet/broker/meta"
	"stet/broker/meta/configs"
	"stet/broker/mirrormsg"
	"stet/fetcher/source"
)

// CreateMirror answers CreateMirror. The source need not be there; where it is, it must not be this cluster.
func (m *Manager) CreateMirror(ctx context.Context, req *mirrormsg.CreateMirrorRequest) *mirrormsg.CreateMirrorResponse {
	var resp *mirrormsg.CreateMirrorResponse
	err := m.refuseSelf(ctx, req)
	if err == nil {
		resp, err = m.o.Controller.CreateMirror(ctx, req)
	}
	if err != nil {
		resp = mirrormsg.NewPtrCreateMirrorResponse()
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
	}
	return resp
}

// selfPatience bounds the look at a source whose mirror is being created.
const selfPatience = 2 * time.Second

// refuseSelf looks whether a mirror that is being created points at this cluster. What the controller refuses anyway is
// left to it, and a source that does not answer is looked at again at every later contact.
func (m *Manager) refuseSelf(ctx context.Context, req *mirrormsg.CreateMirrorRequest) error {
	img := m.o.Image()
	config := map[string]string{}
	for _, c := range req.Config {
		if c.Value != nil {
			config[c.Name] = *c.Value
		}
	}
	o := source.Options{Mirror: req.MirrorName, BrokerID: m.o.Node, Pool: m.o.Pool, Logger: m.o.Logger, Dial: m.o.Dial}
	if mirrormsg.CheckMirrorName(req.MirrorName) != nil || img.Mirror(req.MirrorName) != nil || configs.Mirror.CheckAll(config) != nil || o.ReadConfig(config) != nil {
		return nil
	}
	src := source.New(o)
	defer src.Close()
	ctx, cancel := context.WithTimeout(ctx, selfPatience)
	defer cancel()
	if id, err := src.ClusterID(ctx); err == nil && id != "" && id == img.ClusterID() {
		return mirrormsg.Errorf(kerr.InvalidConfig, "%v", selfError(config["bootstrap.servers"], id))
	}
	return nil
}

// DeleteMirror answers DeleteMirror.
func (m *Manager) DeleteMirror(ctx context.Context, req *mirrormsg.DeleteMirrorRequest) *mirrormsg.DeleteMirrorResponse {
	resp, err := m.o.Controller.DeleteMirror(ctx, req)
	if err != nil {
		resp = mirrormsg.NewPtrDeleteMirrorResponse()
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
	}
	return resp
}

// PauseMirrorTopics answers PauseMirrorTopics.
func (m *Manager) PauseMirrorTopics(ctx context.Context, req *mirrormsg.PauseMirrorTopicsRequest) *mirrormsg.PauseMirrorTopicsResponse {
	resp, err := m.o.Controller.PauseMirrorTopics(ctx, req)
	if err != nil {
		resp = mirrormsg.NewPtrPauseMirrorTopicsResponse()
		resp.MirrorName = req.MirrorName
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
	}
	return resp
}

// ResumeMirrorTopics answers ResumeMirrorTopics.
func (m *Manager) ResumeMirrorTopics(ctx context.Context, req *mirrormsg.ResumeMirrorTopicsRequest) *mirrormsg.ResumeMirrorTopicsResponse {
	resp, err := m.o.Controller.ResumeMirrorTopics(ctx, req)
	if err != nil {
		resp = mirrormsg.NewPtrResumeMirrorTopicsResponse()
		resp.MirrorName = req.MirrorName
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
	}
	return resp
}

// BumpLeaderEpochs answers BumpLeaderEpochs, which brokers send to the controller.
func (m *Manager) BumpLeaderEpochs(ctx context.Context, req *mirrormsg.BumpLeaderEpochsRequest) *mirrormsg.BumpLeaderEpochsResponse {
	resp, err := m.o.Controller.BumpLeaderEpochs(ctx, req)
	if err != nil {
		resp = mirrormsg.NewPtrBumpLeaderEpochsResponse()
		resp.ErrorCode = mirrormsg.CodeForError(err)
	}
	return resp
}

// ReadMirrorStates answers ReadMirrorStates.
func (m *Manager) ReadMirrorStates(ctx context.Context, req *mirrormsg.ReadMirrorStatesRequest) *mirrormsg.ReadMirrorStatesResponse {
	resp, err := m.o.Coordinator.ReadMirrorStates(ctx, req)
	if err != nil {
		resp = mirrormsg.NewPtrReadMirrorStatesResponse()
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
	}
	return resp
}

// WriteMirrorStates answers WriteMirrorStates.
func (m *Manager) WriteMirrorStates(ctx context.Context, req *mirrormsg.WriteMirrorStatesRequest) *mirrormsg.WriteMirrorStatesResponse {
	resp, err := m.o.Coordinator.WriteMirrorStates(ctx, req)
	if err != nil {
		resp = mirrormsg.NewPtrWriteMirrorStatesResponse()
		resp.ErrorCode, resp.ErrorMessage = mirrormsg.CodeAndMessage(err)
	}
	return resp
}

// ListMirrors answers ListMirrors. Stopped topics count until the mirror is deleted.
func (m *Manager) ListMirrors(context.Context, *mirrormsg.ListMirrorsRequest) *mirrormsg.ListMirrorsResponse {
	img := m.o.Image()
	resp := mirrormsg.NewPtrListMirrorsResponse()
	for _, mi := range img.Mirrors() {
		config := img.Config(meta.ResourceMirror, mi.Name)
		l := mirrormsg.NewListMirrorsResponseMirror()
		l.MirrorName, l.SourceBootstrap, l.SourceClusterID = mi.Name, config["bootstrap.servers"], config["source.cluster.id"]
		l.TopicCount = int32(len(img.MirrorTopics(mi.Name)))
		resp.Mirrors = append(resp.Mirrors, l)
	}
	return resp
}
