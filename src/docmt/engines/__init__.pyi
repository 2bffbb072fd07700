from .endpoint_translator import EndpointTranslator as EndpointTranslator
from .http_client import EngineUnavailable as EngineUnavailable
from .profile import EngineProfile as EngineProfile
from .profile import is_endpoint as is_endpoint
from .profile import read_profile as read_profile
