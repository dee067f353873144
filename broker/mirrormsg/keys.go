package mirrormsg

import (
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// API keys. They are in a private range until the public numbers of KIP-1279 exist.
const (
	KeyCreateMirror       int16 = 1279
	KeyStartMirrorTopics  int16 = 1280
	KeyStopMirrorTopics   int16 = 1281
	KeyPauseMirrorTopics  int16 = 1282
	KeyResumeMirrorTopics int16 = 1283
	KeyDeleteMirror       int16 = 1284
	KeyListMirrors        int16 = 1285
	KeyDescribeMirrors    int16 = 1286
	KeyBumpLeaderEpochs   int16 = 1287
	KeyReadMirrorStates   int16 = 1288
	KeyWriteMirrorStates  int16 = 1289

	FirstKey = KeyCreateMirror
	LastKey  = KeyWriteMirrorStates
)

// Numbers that KIP-1279 adds to enumerations of existing requests.
const (
	// CoordinatorTypeMirror is the FindCoordinator key type.
	CoordinatorTypeMirror int8 = 3
	// ConfigResourceMirror is the config resource type.
	ConfigResourceMirror kmsg.ConfigResourceType = 64
	// ACLResourceClusterMirror is the ACL resource type.
	ACLResourceClusterMirror kmsg.ACLResourceType = 8
	// ControlRecordMirrorPIDReset is the control record type.
	ControlRecordMirrorPIDReset int16 = 7
	// Tag1279 is the tagged field that our additions to existing requests use:
	// MirrorInfo of CreateTopics, MirrorId of OffsetCommit.
	Tag1279 uint32 = 1279
	// UnknownAuthorizedOperations says that the operations were not asked for.
	UnknownAuthorizedOperations int32 = -2147483648
)

var names = [...]string{
	"CreateMirror", "StartMirrorTopics", "StopMirrorTopics", "PauseMirrorTopics", "ResumeMirrorTopics", "DeleteMirror",
	"ListMirrors", "DescribeMirrors", "BumpLeaderEpochs", "ReadMirrorStates", "WriteMirrorStates",
}

// NameForKey names a key of this package, "" for any other.
func NameForKey(key int16) string {
	if key < FirstKey || key > LastKey {
		return ""
	}
	return names[key-FirstKey]
}

// RequestForKey returns a new request with its defaults, nil for a key that is not ours.
func RequestForKey(key int16) kmsg.Request {
	switch key {
	case KeyCreateMirror:
		return NewPtrCreateMirrorRequest()
	case KeyStartMirrorTopics:
		return NewPtrStartMirrorTopicsRequest()
	case KeyStopMirrorTopics:
		return NewPtrStopMirrorTopicsRequest()
	case KeyPauseMirrorTopics:
		return NewPtrPauseMirrorTopicsRequest()
	case KeyResumeMirrorTopics:
		return NewPtrResumeMirrorTopicsRequest()
	case KeyDeleteMirror:
		return NewPtrDeleteMirrorRequest()
	case KeyListMirrors:
		return NewPtrListMirrorsRequest()
	case KeyDescribeMirrors:
		return NewPtrDescribeMirrorsRequest()
	case KeyBumpLeaderEpochs:
		return NewPtrBumpLeaderEpochsRequest()
	case KeyReadMirrorStates:
		return NewPtrReadMirrorStatesRequest()
	case KeyWriteMirrorStates:
		return NewPtrWriteMirrorStatesRequest()
	}
	return nil
}

// MaxVersions is kversion.Stable with our keys at version 0. A kgo client needs
// it (kgo.MaxVersions) to send the requests of this package.
func MaxVersions() *kversion.Versions {
	v := kversion.Stable()
	for k := FirstKey; k <= LastKey; k++ {
		v.SetMaxKeyVersion(k, 0)
	}
	return v
}
