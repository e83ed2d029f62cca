from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("payload", "header", "piece", "last")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    header: bytes
    piece: bytes
    last: bool
    def __init__(self, payload: _Optional[bytes] = ..., header: _Optional[bytes] = ..., piece: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("dtype", "shape", "coding", "at", "scales_at", "wants_gradient", "absent")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    CODING_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    SCALES_AT_FIELD_NUMBER: _ClassVar[int]
    WANTS_GRADIENT_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    coding: str
    at: int
    scales_at: int
    wants_gradient: bool
    absent: bool
    def __init__(self, dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., coding: _Optional[str] = ..., at: _Optional[int] = ..., scales_at: _Optional[int] = ..., wants_gradient: _Optional[bool] = ..., absent: _Optional[bool] = ...) -> None: ...

class NamedTensor(_message.Message):
    __slots__ = ("name", "tensor")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    tensor: Tensor
    def __init__(self, name: _Optional[str] = ..., tensor: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class DeviceMessage(_message.Message):
    __slots__ = ("hello", "probe", "arrived", "ready", "step", "evaluate", "finished", "moved", "assessed")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    ASSESSED_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    probe: Probe
    arrived: Arrived
    ready: Ready
    step: Step
    evaluate: Evaluate
    finished: Finished
    moved: Moved
    assessed: Assessed
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., arrived: _Optional[_Union[Arrived, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., step: _Optional[_Union[Step, _Mapping]] = ..., evaluate: _Optional[_Union[Evaluate, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., moved: _Optional[_Union[Moved, _Mapping]] = ..., assessed: _Optional[_Union[Assessed, _Mapping]] = ...) -> None: ...

class ServerMessage(_message.Message):
    __slots__ = ("welcome", "probe", "round", "gradient", "score", "skip", "move", "done", "assess")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ASSESS_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    probe: Probe
    round: Round
    gradient: Gradient
    score: Score
    skip: Skip
    move: Move
    done: Done
    assess: Assess
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., round: _Optional[_Union[Round, _Mapping]] = ..., gradient: _Optional[_Union[Gradient, _Mapping]] = ..., score: _Optional[_Union[Score, _Mapping]] = ..., skip: _Optional[_Union[Skip, _Mapping]] = ..., move: _Optional[_Union[Move, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., assess: _Optional[_Union[Assess, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "name")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    name: str
    def __init__(self, protocol: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("run", "device", "devices", "scenario", "fingerprint", "measure")
    RUN_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    run: str
    device: int
    devices: int
    scenario: str
    fingerprint: str
    measure: bool
    def __init__(self, run: _Optional[str] = ..., device: _Optional[int] = ..., devices: _Optional[int] = ..., scenario: _Optional[str] = ..., fingerprint: _Optional[str] = ..., measure: _Optional[bool] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("payload", "answer_bytes")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ANSWER_BYTES_FIELD_NUMBER: _ClassVar[int]
    payload: Tensor
    answer_bytes: int
    def __init__(self, payload: _Optional[_Union[Tensor, _Mapping]] = ..., answer_bytes: _Optional[int] = ...) -> None: ...

class Arrived(_message.Message):
    __slots__ = ("fingerprint", "samples", "test_samples", "versions", "measurement", "memory_bytes")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    TEST_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    MEASUREMENT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    fingerprint: str
    samples: int
    test_samples: int
    versions: _containers.RepeatedCompositeFieldContainer[Version]
    measurement: Measurement
    memory_bytes: int
    def __init__(self, fingerprint: _Optional[str] = ..., samples: _Optional[int] = ..., test_samples: _Optional[int] = ..., versions: _Optional[_Iterable[_Union[Version, _Mapping]]] = ..., measurement: _Optional[_Union[Measurement, _Mapping]] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class Measurement(_message.Message):
    __slots__ = ("seconds_per_mac", "fluctuation", "distance", "samples", "up_bps", "down_bps", "round_trip_s")
    SECONDS_PER_MAC_FIELD_NUMBER: _ClassVar[int]
    FLUCTUATION_FIELD_NUMBER: _ClassVar[int]
    DISTANCE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    UP_BPS_FIELD_NUMBER: _ClassVar[int]
    DOWN_BPS_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_S_FIELD_NUMBER: _ClassVar[int]
    seconds_per_mac: float
    fluctuation: float
    distance: float
    samples: int
    up_bps: float
    down_bps: float
    round_trip_s: float
    def __init__(self, seconds_per_mac: _Optional[float] = ..., fluctuation: _Optional[float] = ..., distance: _Optional[float] = ..., samples: _Optional[int] = ..., up_bps: _Optional[float] = ..., down_bps: _Optional[float] = ..., round_trip_s: _Optional[float] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("versions",)
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[Version]
    def __init__(self, versions: _Optional[_Iterable[_Union[Version, _Mapping]]] = ...) -> None: ...

class Version(_message.Message):
    __slots__ = ("round", "split")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    round: int
    split: int
    def __init__(self, round: _Optional[int] = ..., split: _Optional[int] = ...) -> None: ...

class Round(_message.Message):
    __slots__ = ("number", "order", "split", "begin_from", "up_bps", "model")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FROM_FIELD_NUMBER: _ClassVar[int]
    UP_BPS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    number: int
    order: int
    split: int
    begin_from: int
    up_bps: float
    model: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    def __init__(self, number: _Optional[int] = ..., order: _Optional[int] = ..., split: _Optional[int] = ..., begin_from: _Optional[int] = ..., up_bps: _Optional[float] = ..., model: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("run", "round", "order", "step")
    RUN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    run: str
    round: int
    order: int
    step: int
    def __init__(self, run: _Optional[str] = ..., round: _Optional[int] = ..., order: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("place", "activations", "labels")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    place: Place
    activations: _containers.RepeatedCompositeFieldContainer[Tensor]
    labels: Tensor
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., activations: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., labels: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Gradient(_message.Message):
    __slots__ = ("place", "gradients", "server_s")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    SERVER_S_FIELD_NUMBER: _ClassVar[int]
    place: Place
    gradients: _containers.RepeatedCompositeFieldContainer[Tensor]
    server_s: float
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., gradients: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., server_s: _Optional[float] = ...) -> None: ...

class Evaluate(_message.Message):
    __slots__ = ("place", "activations", "labels")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    place: Place
    activations: _containers.RepeatedCompositeFieldContainer[Tensor]
    labels: Tensor
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., activations: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., labels: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Score(_message.Message):
    __slots__ = ("place", "loss", "right", "right_labels", "counted_labels", "metric")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    RIGHT_LABELS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_LABELS_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    place: Place
    loss: float
    right: bytes
    right_labels: int
    counted_labels: int
    metric: float
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., loss: _Optional[float] = ..., right: _Optional[bytes] = ..., right_labels: _Optional[int] = ..., counted_labels: _Optional[int] = ..., metric: _Optional[float] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("place", "compute_s", "transmit_s", "server_s", "train_loss", "model", "step_compute_s")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    TRANSMIT_S_FIELD_NUMBER: _ClassVar[int]
    SERVER_S_FIELD_NUMBER: _ClassVar[int]
    TRAIN_LOSS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STEP_COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    place: Place
    compute_s: float
    transmit_s: float
    server_s: float
    train_loss: float
    model: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    step_compute_s: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., compute_s: _Optional[float] = ..., transmit_s: _Optional[float] = ..., server_s: _Optional[float] = ..., train_loss: _Optional[float] = ..., model: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ..., step_compute_s: _Optional[_Iterable[float]] = ...) -> None: ...

class Assess(_message.Message):
    __slots__ = ("round", "order", "begin_from", "split", "model")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FROM_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    round: int
    order: int
    begin_from: int
    split: int
    model: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    def __init__(self, round: _Optional[int] = ..., order: _Optional[int] = ..., begin_from: _Optional[int] = ..., split: _Optional[int] = ..., model: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ...) -> None: ...

class Assessed(_message.Message):
    __slots__ = ("place", "test_loss", "test_accuracy", "own_accuracy", "test_metric")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TEST_LOSS_FIELD_NUMBER: _ClassVar[int]
    TEST_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    OWN_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    TEST_METRIC_FIELD_NUMBER: _ClassVar[int]
    place: Place
    test_loss: float
    test_accuracy: float
    own_accuracy: float
    test_metric: float
    def __init__(self, place: _Optional[_Union[Place, _Mapping]] = ..., test_loss: _Optional[float] = ..., test_accuracy: _Optional[float] = ..., own_accuracy: _Optional[float] = ..., test_metric: _Optional[float] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("order", "from_split", "split", "begin_from", "layers")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    FROM_SPLIT_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FROM_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    order: int
    from_split: int
    split: int
    begin_from: int
    layers: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    def __init__(self, order: _Optional[int] = ..., from_split: _Optional[int] = ..., split: _Optional[int] = ..., begin_from: _Optional[int] = ..., layers: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ...) -> None: ...

class Moved(_message.Message):
    __slots__ = ("order", "layers")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    order: int
    layers: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    def __init__(self, order: _Optional[int] = ..., layers: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ...) -> None: ...

class Skip(_message.Message):
    __slots__ = ("order", "why")
    ORDER_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    order: int
    why: str
    def __init__(self, order: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("why", "begin_from")
    WHY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FROM_FIELD_NUMBER: _ClassVar[int]
    why: str
    begin_from: int
    def __init__(self, why: _Optional[str] = ..., begin_from: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...
